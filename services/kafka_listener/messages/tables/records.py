"""The APIs about records: to produce and fetch them, their offsets and transactions, in the format of `fields.py`."""

from typing import Final

TABLE: Final = """\
Produce 0 versions 3-13 flexible 9+
  request
    transactional_id string? = null, acks int16, timeout_ms int32
    topic_data [TopicProduceData]:
      name string 3-12, topic_id uuid 13+
      partition_data [PartitionProduceData]: index int32, records records?
  response
    responses [TopicProduceResponse]:
      name string 3-12, topic_id uuid 13+
      partition_responses [PartitionProduceResponse]:
        index int32, error_code int16, base_offset int64, log_append_time_ms int64 = -1
        log_start_offset int64 5+ = -1
        record_errors [BatchIndexAndErrorMessage] 8+: batch_index int32, batch_index_error_message string? = null
        error_message string? 8+ = null
        current_leader LeaderIdAndEpoch 10+ tag 0: leader_id int32 = -1, leader_epoch int32 = -1
    throttle_time_ms int32
    node_endpoints [NodeEndpoint] 10+ tag 0: node_id int32, host string, port int32, rack string? = null

Fetch 1 versions 4-17 flexible 12+
  request
    cluster_id string? 12+ tag 0 = null, replica_id int32 4-14 = -1
    replica_state ReplicaState 15+ tag 1: replica_id int32 = -1, replica_epoch int64 = -1
    max_wait_ms int32, min_bytes int32, max_bytes int32 = 2147483647, isolation_level int8, session_id int32 7+
    session_epoch int32 7+ = -1
    topics [FetchTopic]:
      topic string 4-12, topic_id uuid 13+
      partitions [FetchPartition]:
        partition int32, current_leader_epoch int32 9+ = -1, fetch_offset int64
        last_fetched_epoch int32 12+ = -1, log_start_offset int64 5+ = -1, partition_max_bytes int32
        replica_directory_id uuid 17+ tag 0
    forgotten_topics_data [ForgottenTopic] 7+: topic string 7-12, topic_id uuid 13+, partitions [int32]
    rack_id string 11+
  response
    throttle_time_ms int32, error_code int16 7+, session_id int32 7+
    responses [FetchableTopicResponse]:
      topic string 4-12, topic_id uuid 13+
      partitions [PartitionData]:
        partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64 = -1
        log_start_offset int64 5+ = -1
        diverging_epoch EpochEndOffset 12+ tag 0: epoch int32 = -1, end_offset int64 = -1
        current_leader LeaderIdAndEpoch 12+ tag 1: leader_id int32 = -1, leader_epoch int32 = -1
        snapshot_id SnapshotId 12+ tag 2: end_offset int64 = -1, epoch int32 = -1
        aborted_transactions [AbortedTransaction]?: producer_id int64, first_offset int64
        preferred_read_replica int32 11+ = -1, records records?
    node_endpoints [NodeEndpoint] 16+ tag 0: node_id int32, host string, port int32, rack string? = null

ListOffsets 2 versions 1-11 flexible 6+
  request
    replica_id int32, isolation_level int8 2+
    topics [ListOffsetsTopic]:
      name string
      partitions [ListOffsetsPartition]: partition_index int32, current_leader_epoch int32 4+ = -1, timestamp int64
    timeout_ms int32 10+
  response
    throttle_time_ms int32 2+
    topics [ListOffsetsTopicResponse]:
      name string
      partitions [ListOffsetsPartitionResponse]:
        partition_index int32, error_code int16, timestamp int64 = -1, offset int64 = -1
        leader_epoch int32 4+ = -1

DeleteRecords 21 versions 0-2 flexible 2+
  request
    topics [DeleteRecordsTopic]:
      name string
      partitions [DeleteRecordsPartition]: partition_index int32, offset int64
    timeout_ms int32
  response
    throttle_time_ms int32
    topics [DeleteRecordsTopicResult]:
      name string
      partitions [DeleteRecordsPartitionResult]: partition_index int32, low_watermark int64, error_code int16

InitProducerId 22 versions 0-6 flexible 2+
  request
    transactional_id string?, transaction_timeout_ms int32, producer_id int64 3+ = -1
    producer_epoch int16 3+ = -1, enable2_pc bool 6+, keep_prepared_txn bool 6+
  response
    throttle_time_ms int32, error_code int16, producer_id int64 = -1, producer_epoch int16
    ongoing_txn_producer_id int64 6+ = -1, ongoing_txn_producer_epoch int16 6+ = -1

AddPartitionsToTxn 24 versions 0-5 flexible 3+
  request
    transactions [AddPartitionsToTxnTransaction] 4+:
      transactional_id string, producer_id int64, producer_epoch int16, verify_only bool
      topics [AddPartitionsToTxnTopic]: name string, partitions [int32]
    v3_and_below_transactional_id string 0-3, v3_and_below_producer_id int64 0-3
    v3_and_below_producer_epoch int16 0-3, v3_and_below_topics [AddPartitionsToTxnTopic] 0-3
  response
    throttle_time_ms int32
    results_by_topic_v3_and_below [AddPartitionsToTxnTopicResult] 0-3:
      name string
      results_by_partition [AddPartitionsToTxnPartitionResult]: partition_index int32, partition_error_code int16
    error_code int16 4+
    results_by_transaction [AddPartitionsToTxnResult] 4+:
      transactional_id string, topic_results [AddPartitionsToTxnTopicResult]

EndTxn 26 versions 0-5 flexible 3+
  request
    transactional_id string, producer_id int64, producer_epoch int16, committed bool
  response
    throttle_time_ms int32, error_code int16, producer_id int64 5+ = -1, producer_epoch int16 5+ = -1
"""
