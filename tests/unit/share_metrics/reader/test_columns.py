"""The columns of each kind, as docs/spec/pipeline.md lists them: names, order and types."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DecimalType

from share_metrics.reader import Kind, schema_of

COMMON: Final = (
    "stream:string,entry_id:string,epoch:bigint,seq:bigint,ts:timestamp,record_type:string,bytes:int,error:string,"
    "raw:binary"
)
PARTITIONS: Final = "array<struct<topic_id:string,topic_name:string,partitions:array<int>>>"
OWN: Final = {
    Kind.SHARE_STATE: "group_id:string,topic_id:string,partition:int,state_epoch:int,leader_epoch:int,"
    "generation:int,snapshot_epoch:int,start_offset:bigint,delivery_complete_count:int,create_ts:timestamp,write_ts:timestamp,"
    "state_batches:array<struct<first_offset:bigint,last_offset:bigint,delivery_state:int,delivery_count:int,"
    "not_before:timestamp>>,"
    "cause:int,n_accept:int,n_release:int,n_reject:int,n_timeout:int,n_limit:int,n_given_back:int,max_dc:int,"
    "sum_dc:bigint,hwm:bigint,speo:bigint,write_id:bigint,delivery_limit:int,"
    "archived:array<struct<first_offset:bigint,last_offset:bigint,delivery_count:int,reason:int>>,"
    "failures:array<struct<first_offset:bigint,last_offset:bigint,delivery_count:int,reason:string>>",
    Kind.GROUP: "group_id:string,member_id:string,tombstone:boolean,cause:int,reason:string,group_epoch:int,"
    "member_count:int,assignment_epoch:int,member_epoch:int,previous_member_epoch:int,member_state:int,rack_id:string,"
    "client_id:string,client_host:string,subscribed_topic_names:array<string>,"
    "assigned:array<struct<topic_id:string,partitions:array<int>>>,"
    f"initializing:{PARTITIONS},initialized:{PARTITIONS},deleting:array<struct<topic_id:string,topic_name:string>>",
    Kind.LOG_META: "topic_id:string,partition:int,base_offset:bigint,last_offset:bigint,record_count:int,"
    "log_end_offset:bigint",
}


@pytest.mark.rule("PM-16", "PM-17", "PM-18", "PM-79")
@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_has_the_columns_of_its_rule(kind: Kind) -> None:
    """The types are Spark's: offsets are BIGINT, and there are no Decimals."""
    found = from_arrow_schema(schema_of(kind))
    assert found.simpleString() == f"struct<{COMMON},{OWN[kind]}>"
    assert all(field.nullable and not isinstance(field.dataType, DecimalType) for field in found)
