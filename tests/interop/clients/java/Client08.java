import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.api.ConsumerMetadataRequest;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Kafka 0.8.2: the first Java producer, the SimpleConsumer, offsets kept by the broker, no groups, no admin. */
public final class Client08 extends Contract {
    private static final String NAME = "client-08";
    private static final short KEPT_BY_KAFKA = 1;  // version 0 of the offset requests keeps them in ZooKeeper
    private static final int SOCKET_MS = (int) PATIENCE_MS + 5_000;
    private final String host;
    private final int port;

    private Client08(String bootstrap) {
        host = bootstrap.split(":")[0];
        port = Integer.parseInt(bootstrap.split(":")[1]);
    }

    public static void main(String[] args) throws Exception {
        new Client08(args[0]).serve();
    }

    @Override
    List<Long> produce(String topic, String codec, boolean idempotent, List<Entry> entries) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", host + ":" + port);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(impatient(properties))) {
            for (Entry entry : entries) {
                Future<RecordMetadata> result = producer.send(new ProducerRecord<>(topic, 0, entry.key, entry.value));
                if (result.isDone()) {
                    result.get();  // fails at once: each record would wait for as long again
                }
                sent.add(result);
            }
            for (Future<RecordMetadata> result : sent) {
                offsets.add(result.get().offset());
            }
        }
        return offsets;
    }

    @Override
    List<Entry> consume(String topic, int count) {
        return read(topic, 0, count);
    }

    private List<Entry> read(String topic, long from, int count) {
        SimpleConsumer consumer = new SimpleConsumer(host, port, SOCKET_MS, 1 << 16, NAME);
        List<Entry> entries = new ArrayList<>();
        long next = from;
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (entries.size() < count && System.currentTimeMillis() < deadline) {
            FetchResponse response = consumer.fetch(
                new FetchRequestBuilder().clientId(NAME).maxWait(100).minBytes(1).addFetch(topic, 0, next, 1 << 20).build());
            if (response.hasError()) {
                throw new IllegalStateException("fetch: error " + response.errorCode(topic, 0));
            }
            for (MessageAndOffset found : response.messageSet(topic, 0)) {
                if (found.offset() >= next && entries.size() < count) {
                    Entry entry = new Entry();
                    entry.offset = found.offset();
                    entry.key = bytes(found.message().key());
                    entry.value = bytes(found.message().payload());
                    entries.add(entry);
                    next = found.offset() + 1;
                }
            }
        }
        consumer.close();
        return entries;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return copy;
    }

    private static List<Long> offsets(List<Entry> entries) {
        List<Long> offsets = new ArrayList<>();
        for (Entry entry : entries) {
            offsets.add(entry.offset);
        }
        return offsets;
    }

    @Override
    List<List<Long>> resume(String group, String topic, int first, int count) throws Exception {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        List<Long> read = offsets(read(topic, 0, first));
        BlockingChannel channel = coordinator(group);
        OffsetAndMetadata next = new OffsetAndMetadata(read.get(first - 1) + 1, "by 0.8", System.currentTimeMillis());
        channel.send(new OffsetCommitRequest(group, Collections.singletonMap(partition, next), 1, NAME, KEPT_BY_KAFKA).underlying());
        Object refused = kafka.javaapi.OffsetCommitResponse.readFrom(channel.receive().buffer()).errors().get(partition);
        if (!refused.equals(ErrorMapping.NoError())) {
            throw new IllegalStateException("commit: error " + refused);
        }
        channel.disconnect();
        channel = coordinator(group);
        channel.send(new OffsetFetchRequest(group, Collections.singletonList(partition), KEPT_BY_KAFKA, 2, NAME).underlying());
        OffsetMetadataAndError committed =
            kafka.javaapi.OffsetFetchResponse.readFrom(channel.receive().buffer()).offsets().get(partition);
        channel.disconnect();
        if (committed.error() != ErrorMapping.NoError() || !committed.metadata().equals("by 0.8")) {
            throw new IllegalStateException("committed: " + committed);
        }
        return Arrays.asList(read, offsets(read(topic, committed.offset(), count - first)));
    }

    private BlockingChannel coordinator(String group) throws InterruptedException {
        int size = BlockingChannel.UseDefaultBufferSize();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            BlockingChannel channel = new BlockingChannel(host, port, size, size, SOCKET_MS);
            channel.connect();
            channel.send(new ConsumerMetadataRequest(group, ConsumerMetadataRequest.CurrentVersion(), 0, NAME));
            ConsumerMetadataResponse found = ConsumerMetadataResponse.readFrom(channel.receive().buffer());
            if (found.errorCode() == ErrorMapping.NoError() && found.coordinator().port() == port) {
                return channel;
            }
            channel.disconnect();
            Thread.sleep(100);  // the topic of offsets is being made
        }
        throw new IllegalStateException("no coordinator");
    }

    @Override
    String group(String group, String topic, int count) {
        throw new UnsupportedOperationException("groups are ZooKeeper's in 0.8");
    }

    @Override
    String admin(String topic, String name, String value) {
        throw new UnsupportedOperationException("topics are made in ZooKeeper in 0.8");
    }
}
