"""The protobuf modules match the .proto files, and the protocol keeps the promises that code relies on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

import hatch_build
from kip932 import errors
from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from kip932.internal.v1 import share_coordinator_service_pb2
from kip932.records.v1 import group_log_pb2, share_state_log_pb2, state_batch_pb2
from sharegroups.errors import DeserializationError

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = {
    name: module.DESCRIPTOR.services_by_name[name]
    for name, module in {
        "ClusterService": cluster_service_pb2,
        "GroupCoordinatorService": group_coordinator_service_pb2,
        "PartitionLeaderService": partition_leader_service_pb2,
        "ShareCoordinatorService": share_coordinator_service_pb2,
    }.items()
}


def test_the_modules_beside_the_proto_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    hatch_build.generate(ROOT, into=tmp_path)
    fresh = {path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2*.py*")}
    present = {
        path.relative_to(ROOT / "protos") for path in (ROOT / "protos").rglob("*_pb2*.py*") if path.suffix != ".pyc"
    }
    assert present == fresh, "modules are missing or left over; run: make protos"
    stale = [
        str(name) for name in sorted(fresh) if (tmp_path / name).read_bytes() != (ROOT / "protos" / name).read_bytes()
    ]
    assert stale == [], "modules are stale; run: make protos"


def test_generating_twice_changes_nothing(tmp_path: Path) -> None:
    assert hatch_build.generate(ROOT, into=tmp_path) != []
    assert hatch_build.generate(ROOT, into=tmp_path) == []


def test_a_module_without_its_proto_file_is_removed(tmp_path: Path) -> None:
    hatch_build.generate(ROOT, into=tmp_path)
    left_over = tmp_path / "kip932/api/v1/gone_pb2.py"
    left_over.write_text("")
    assert hatch_build.generate(ROOT, into=tmp_path) == [left_over]
    assert not left_over.exists()


def error_classes(base: type[errors.KafkaError]) -> Iterator[type[errors.KafkaError]]:
    for error in base.__subclasses__():
        yield error
        yield from error_classes(error)


def test_every_error_of_the_exception_tree_has_its_number_in_the_protocol() -> None:
    named = [error for error in error_classes(errors.KafkaError) if "code" in vars(error)]
    wired = [error for error in named if not error.name.startswith("_")]
    assert wired != []
    for error in wired:
        assert ErrorCode.Value(f"ERROR_CODE_{error.name}") == error.code
    assert ErrorCode.Value("ERROR_CODE_NONE") == errors.NONE


def test_errors_that_never_leave_the_client_have_numbers_the_protocol_does_not_use() -> None:
    local = [error for error in error_classes(DeserializationError) if "code" in vars(error)]
    assert local != []
    for error in local:
        assert error.name.startswith("_")
        assert error.code < min(ErrorCode.values())


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_the_messages_of_each_method_have_its_name(service: str) -> None:
    for name, method in SERVICES[service].methods_by_name.items():
        assert method.input_type.name == f"{name}Request"
        assert method.output_type.name == f"{name}Response"


def fields(message: Descriptor) -> Iterator[FieldDescriptor]:
    yield from message.fields
    for nested in message.nested_types:
        yield from fields(nested)


def responses() -> Iterator[Descriptor]:
    for service in SERVICES.values():
        for method in service.methods:
            yield method.output_type


@pytest.mark.rule("CM-14", "CL-15")
def test_whatever_may_say_not_the_coordinator_can_name_the_coordinator() -> None:
    of_group = {m.output_type.name: m.output_type for m in SERVICES["GroupCoordinatorService"].methods}
    # A node that lists groups leaves out those that it does not coordinate (GC-123).
    of_group.pop("ListGroupsResponse")
    of_share = {m.output_type.name: m.output_type for m in SERVICES["ShareCoordinatorService"].methods}
    of_share.pop("StateStreamResponse")
    # A node that is asked about topics answers for the shards that it serves, and leaves out the others (SC-116).
    of_share.pop("ReadTopicStartOffsetsResponse")
    for name, message in {**of_group, **of_share}.items():
        assert [field.name for field in fields(message) if field.name == "coordinator"] == ["coordinator"], name


@pytest.mark.rule("PL-255", "CM-14")
def test_whatever_may_say_not_the_leader_can_name_the_leader() -> None:
    for method in SERVICES["PartitionLeaderService"].methods:
        # A node that lists progress, or is asked for sizes, answers for what it leads, and leaves out the rest (PL-951,
        # CM-209).
        if not method.name.endswith("Stream") and method.name not in {"ListShareProgress", "DescribeLogDirs"}:
            names = {field.name for field in fields(method.output_type)}
            assert {"current_leader", "node_endpoints"} <= names, method.name


def test_every_error_code_comes_with_room_for_a_message() -> None:
    for response in responses():
        for message in [response, *nested(response)]:
            names = {field.name for field in message.fields}
            for name in names:
                if name.endswith("error_code"):
                    only_code = message.name == "PartitionMetadata"  # as in Kafka, the response is just the error code
                    assert only_code or name.replace("error_code", "error_message") in names, message.full_name


def nested(message: Descriptor) -> Iterator[Descriptor]:
    for inner in message.nested_types:
        yield inner
        yield from nested(inner)


@pytest.mark.rule("CM-16")
def test_group_record_values_are_numbered_as_their_types() -> None:
    value = group_log_pb2.GroupRecord.DESCRIPTOR.oneofs_by_name["value"]
    assert [field.number for field in value.fields] == [10, 11, 12, 13, 14, 15, 90, 91]


@pytest.mark.parametrize(
    "message",
    [
        state_batch_pb2.StateBatch.DESCRIPTOR,
        share_state_log_pb2.ShareSnapshot.DESCRIPTOR,
        share_state_log_pb2.ShareUpdate.DESCRIPTOR,
    ],
    ids=lambda message: str(message.name),
)
def test_numbers_for_transactional_acknowledgements_stay_free(message: Descriptor) -> None:
    source = (ROOT / "protos" / message.file.name).read_text(encoding="utf-8")
    body = source.split(f"message {message.name} {{")[1]
    assert "reserved 900 to 919;" in body.split("\n}")[0]


def test_null_and_empty_lists_differ_on_the_wire() -> None:
    absent = ShareGroupHeartbeatRequest()
    empty = ShareGroupHeartbeatRequest(subscribed_topic_names=StringList())
    assert not ShareGroupHeartbeatRequest.FromString(absent.SerializeToString()).HasField("subscribed_topic_names")
    assert ShareGroupHeartbeatRequest.FromString(empty.SerializeToString()).HasField("subscribed_topic_names")


@pytest.mark.rule("CM-41")
def test_a_fetched_batch_carries_the_producers_bytes_as_they_are() -> None:
    produced = RecordBatch(base_timestamp_ms=5, records=[Record(value=b"v")]).SerializeToString()
    sent = FetchedBatch(base_offset=7, count=1, batch=produced).SerializeToString()
    received = FetchedBatch.FromString(sent)
    assert received.batch == produced
    assert not RecordBatch.FromString(received.batch).records[0].HasField("key")
