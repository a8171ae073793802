"""The APIs about the cluster, its topics and configs, in the format of `fields.py`."""

from typing import Final

TABLE: Final = """\
ApiVersions 18 versions 0-4 flexible 3+
  request
    client_software_name string 3+, client_software_version string 3+
  response
    error_code int16
    api_keys [ApiVersion]: api_key int16, min_version int16, max_version int16
    throttle_time_ms int32 1+
    supported_features [SupportedFeatureKey] 3+ tag 0: name string, min_version int16, max_version int16
    finalized_features_epoch int64 3+ tag 1 = -1
    finalized_features [FinalizedFeatureKey] 3+ tag 2: name string, max_version_level int16, min_version_level int16
    zk_migration_ready bool 3+ tag 3

Metadata 3 versions 0-13 flexible 9+
  request
    topics [MetadataRequestTopic]?1+: topic_id uuid 10+, name string?10+
    allow_auto_topic_creation bool 4+ = true, include_cluster_authorized_operations bool 8-10
    include_topic_authorized_operations bool 8+
  response
    throttle_time_ms int32 3+
    brokers [MetadataResponseBroker]: node_id int32, host string, port int32, rack string? 1+ = null
    cluster_id string? 2+ = null, controller_id int32 1+ = -1
    topics [MetadataResponseTopic]:
      error_code int16, name string?12+, topic_id uuid 10+, is_internal bool 1+
      partitions [MetadataResponsePartition]:
        error_code int16, partition_index int32, leader_id int32, leader_epoch int32 7+ = -1
        replica_nodes [int32], isr_nodes [int32], offline_replicas [int32] 5+
      topic_authorized_operations int32 8+ = -2147483648
    error_code int16 13+, cluster_authorized_operations int32 8-10 = -2147483648

DescribeCluster 60 versions 0-2 flexible 0+
  request
    include_cluster_authorized_operations bool, endpoint_type int8 1+ = 1, include_fenced_brokers bool 2+
  response
    throttle_time_ms int32, error_code int16, error_message string? = null, endpoint_type int8 1+ = 1
    cluster_id string, controller_id int32 = -1
    brokers [DescribeClusterBroker]:
      broker_id int32, host string, port int32, rack string? = null, is_fenced bool 2+
    cluster_authorized_operations int32 = -2147483648

DescribeTopicPartitions 75 versions 0 flexible 0+
  request
    topics [TopicRequest]: name string
    response_partition_limit int32 = 2000
    cursor Cursor? = null: topic_name string, partition_index int32
  response
    throttle_time_ms int32
    topics [DescribeTopicPartitionsResponseTopic]:
      error_code int16, name string?, topic_id uuid, is_internal bool
      partitions [DescribeTopicPartitionsResponsePartition]:
        error_code int16, partition_index int32, leader_id int32, leader_epoch int32 = -1, replica_nodes [int32]
        isr_nodes [int32], eligible_leader_replicas [int32]? = null, last_known_elr [int32]? = null
        offline_replicas [int32]
      topic_authorized_operations int32 = -2147483648
    next_cursor Cursor? = null: topic_name string, partition_index int32

CreateTopics 19 versions 2-7 flexible 5+
  request
    topics [CreatableTopic]:
      name string, num_partitions int32, replication_factor int16
      assignments [CreatableReplicaAssignment]: partition_index int32, broker_ids [int32]
      configs [CreatableTopicConfig]: name string, value string?
    timeout_ms int32 = 60000, validate_only bool
  response
    throttle_time_ms int32
    topics [CreatableTopicResult]:
      name string, topic_id uuid 7+, error_code int16, error_message string?
      topic_config_error_code int16 5+ tag 0, num_partitions int32 5+ = -1, replication_factor int16 5+ = -1
      configs [CreatableTopicConfigs]? 5+:
        name string, value string?, read_only bool, config_source int8 = -1, is_sensitive bool

CreatePartitions 37 versions 0-3 flexible 2+
  request
    topics [CreatePartitionsTopic]:
      name string, count int32
      assignments [CreatePartitionsAssignment]?: broker_ids [int32]
    timeout_ms int32, validate_only bool
  response
    throttle_time_ms int32
    results [CreatePartitionsTopicResult]: name string, error_code int16, error_message string? = null

DeleteTopics 20 versions 1-6 flexible 4+
  request
    topics [DeleteTopicState] 6+: name string? = null, topic_id uuid
    topic_names [string] 1-5, timeout_ms int32
  response
    throttle_time_ms int32
    responses [DeletableTopicResult]:
      name string?6+, topic_id uuid 6+, error_code int16, error_message string? 5+ = null

DescribeConfigs 32 versions 1-4 flexible 4+
  request
    resources [DescribeConfigsResource]: resource_type int8, resource_name string, configuration_keys [string]?
    include_synonyms bool, include_documentation bool 3+
  response
    throttle_time_ms int32
    results [DescribeConfigsResult]:
      error_code int16, error_message string?, resource_type int8, resource_name string
      configs [DescribeConfigsResourceResult]:
        name string, value string?, read_only bool, config_source int8 = -1, is_sensitive bool
        synonyms [DescribeConfigsSynonym]: name string, value string?, source int8
        config_type int8 3+, documentation string? 3+

IncrementalAlterConfigs 44 versions 0-1 flexible 1+
  request
    resources [AlterConfigsResource]:
      resource_type int8, resource_name string
      configs [AlterableConfig]: name string, config_operation int8, value string?
    validate_only bool
  response
    throttle_time_ms int32
    responses [AlterConfigsResourceResponse]:
      error_code int16, error_message string?, resource_type int8, resource_name string
"""
