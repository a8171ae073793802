import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java clients as a test drives them: each line of standard input is a command, a JSON array, and each is
 * answered by one line, a JSON object. Clients are opened by name, and live until they are closed or the input ends.
 *
 * <p>The first two words of a command are the client and what it does. Answers have "error", the class of what the call
 * threw, and "message". What callbacks were given since the last answer is in "acknowledged" or "sent".
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A client of the test. */
    private interface Client {
        /** Do what the command says, and add its results to the answer. */
        void call(JsonNode command, ObjectNode answer) throws Exception;

        void close();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Client> clients = new HashMap<>();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            String name = command.get(0).asText();
            try {
                if (command.get(1).asText().equals("open")) {
                    clients.put(name, opened(command.get(2).asText(), command.get(3)));
                } else {
                    clients.get(name).call(command, answer);
                }
            } catch (Exception error) {
                answer.put("error", error.getClass().getSimpleName()).put("message", String.valueOf(error.getMessage()));
            }
            out.println(answer);
            out.flush();
        }
        clients.values().forEach(Client::close);
    }

    private static Client opened(String kind, JsonNode settings) {
        Map<String, Object> found = new HashMap<>();
        settings.properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return kind.equals("producer") ? new Sender(found) : new Member(found);
    }

    /**
     * A producer: ["p", "send", topic, [[key, value, partition], …]], where any of the three may be null; "flush"; with a
     * transactional id also "init", "begin", "end" and "abort".
     */
    private static final class Sender implements Client {
        private final KafkaProducer<String, String> producer;
        private ArrayNode sent = JSON.createArrayNode();

        Sender(Map<String, Object> settings) {
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        }

        @Override
        public void call(JsonNode command, ObjectNode answer) {
            switch (command.get(1).asText()) {
                case "send" -> command.get(3).forEach(each -> send(command.get(2).asText(), each));
                case "flush" -> producer.flush();
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "end" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                default -> throw new IllegalArgumentException(command.toString());
            }
            synchronized (this) {
                answer.set("sent", sent);
                sent = JSON.createArrayNode();
            }
        }

        private void send(String topic, JsonNode each) {
            String key = each.get(0).isNull() ? null : each.get(0).asText();
            String value = each.get(1).isNull() ? null : each.get(1).asText();
            Integer partition = each.get(2).isNull() ? null : each.get(2).asInt();
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, key, value);
            record.headers().add("n", String.valueOf(value).getBytes(StandardCharsets.UTF_8)).add("null", null);
            producer.send(record, (metadata, error) -> {
                synchronized (this) {
                    ArrayNode one = sent.addArray().add(value);
                    if (error == null) one.add(metadata.partition()).add(metadata.offset());
                    else one.add(error.getClass().getSimpleName());
                }
            });
        }

        @Override
        public void close() {
            producer.close(Duration.ofSeconds(5));
        }
    }

    /**
     * A member of a share group: "subscribe" [topics], "poll" milliseconds, "acknowledge" [[topic, partition, offset,
     * type], …], "commit" and "commit_async", "lock" for the lock's time, "close".
     */
    private static final class Member implements Client {
        private final KafkaShareConsumer<String, String> consumer;
        private final Map<String, ConsumerRecord<String, String>> given = new HashMap<>();
        private final ArrayNode acknowledged = JSON.createArrayNode();

        Member(Map<String, Object> settings) {
            consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((where, found) -> {
                ArrayNode one = acknowledged.addArray().add(where.topic()).add(where.partition());
                found.stream().sorted().forEach(one.addArray()::add);
                one.add(error == null ? null : error.getClass().getSimpleName());
            }));
        }

        @Override
        public void call(JsonNode command, ObjectNode answer) {
            try {
                act(command, answer);
            } finally {
                answer.set("acknowledged", acknowledged.deepCopy());
                acknowledged.removeAll();
            }
        }

        private void act(JsonNode command, ObjectNode answer) {
            JsonNode given = command.get(2);
            switch (command.get(1).asText()) {
                case "subscribe" -> {
                    List<String> topics = new ArrayList<>();
                    given.forEach(each -> topics.add(each.asText()));
                    consumer.subscribe(topics);
                }
                case "poll" -> poll(given.asLong(), answer.putArray("records"));
                case "acknowledge" -> given.forEach(each -> consumer.acknowledge(
                        this.given.get(place(each.get(0).asText(), each.get(1).asInt(), each.get(2).asLong())),
                        AcknowledgeType.valueOf(each.get(3).asText())));
                case "commit" -> {
                    ObjectNode refused = answer.putObject("refused");
                    consumer.commitSync(Duration.ofSeconds(30)).forEach((where, error) -> error.ifPresent(
                            found -> refused.put(where.topicPartition().toString(), found.getClass().getSimpleName())));
                }
                case "commit_async" -> consumer.commitAsync();
                case "lock" -> answer.put("lock_ms", consumer.acquisitionLockTimeoutMs().orElse(-1));
                case "close" -> consumer.close(Duration.ofSeconds(30));
                default -> throw new IllegalArgumentException(command.toString());
            }
        }

        private void poll(long milliseconds, ArrayNode records) {
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(milliseconds))) {
                given.put(place(each.topic(), each.partition(), each.offset()), each);
                ObjectNode headers = records.addObject()
                        .put("topic", each.topic()).put("partition", each.partition()).put("offset", each.offset())
                        .put("key", each.key()).put("value", each.value()).put("timestamp", each.timestamp())
                        .put("delivery", each.deliveryCount().map(Short::intValue).orElse(-1)).putObject("headers");
                for (Header header : each.headers()) {
                    headers.put(header.key(), header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
                }
            }
        }

        private static String place(String topic, int partition, long offset) {
            return topic + "/" + partition + "/" + offset;
        }

        @Override
        public void close() {
            consumer.close(Duration.ofSeconds(5));
        }
    }
}
