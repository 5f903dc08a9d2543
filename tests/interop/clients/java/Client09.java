import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Kafka 0.9 and later. What differs between releases is in `Era`. */
public final class Client09 extends Contract {
    private final String bootstrap;

    private Client09(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        new Client09(args[0]).serve();
    }

    @Override
    List<Long> produce(String topic, String codec, boolean idempotent, List<Entry> entries) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        properties.put("enable.idempotence", Boolean.toString(idempotent));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(impatient(properties))) {
            for (Entry entry : entries) {
                Future<RecordMetadata> result = producer.send(Era.record(topic, entry));
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

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", Long.toString(SESSION_MS));
        properties.put("heartbeat.interval.ms", "200");
        properties.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(impatient(properties));
    }

    @Override
    List<Entry> consume(String topic, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("reader")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            return read(consumer, count);
        }
    }

    private static List<Entry> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<Entry> entries = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (entries.size() < count && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : Era.poll(consumer, 100)) {
                Entry entry = new Entry();
                entry.offset = record.offset();
                entry.key = record.key();
                entry.value = record.value();
                Era.fill(entry, record);
                if (entries.size() < count) {
                    entries.add(entry);
                }
            }
        }
        return entries;
    }

    @Override
    List<List<Long>> resume(String group, String topic, int first, int count) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<Long> one = new ArrayList<>();
        List<Long> two = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            consumer.subscribe(Collections.singletonList(topic));
            read(consumer, first).forEach(entry -> one.add(entry.offset));
            OffsetAndMetadata next = new OffsetAndMetadata(one.get(first - 1) + 1, "by Java");
            consumer.commitSync(Collections.singletonMap(partition, next));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            consumer.subscribe(Collections.singletonList(topic));
            read(consumer, count - first).forEach(entry -> two.add(entry.offset));
            if (!Era.committed(consumer, partition).metadata().equals("by Java")) {
                throw new IllegalStateException("committed: " + Era.committed(consumer, partition));
            }
        }
        return Arrays.asList(one, two);
    }

    /** A member of a group, in a thread of its own: old releases wait inside poll() for the others. */
    private final class Member extends Thread implements ConsumerRebalanceListener {
        final TreeSet<Integer> partitions = new TreeSet<>();  // guarded by this, as the others
        final TreeSet<String> read = new TreeSet<>();
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private boolean leaving;
        private Exception failure;

        Member(String group, String topic) {
            consumer = consumer(group);
            this.topic = topic;
            start();
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(Collections.singletonList(topic), this);
                while (!hasToLeave()) {
                    for (ConsumerRecord<byte[], byte[]> record : Era.poll(consumer, 50)) {
                        add(record);
                    }
                }
                consumer.commitSync();
            } catch (Exception error) {
                fail(error);
            } finally {
                consumer.close();
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            consumer.commitSync();
            revoked.forEach(each -> change(each.partition(), false));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            assigned.forEach(each -> change(each.partition(), true));
        }

        private synchronized void change(int partition, boolean ours) {
            if (ours) {
                partitions.add(partition);
            } else {
                partitions.remove(partition);
            }
        }

        private synchronized void add(ConsumerRecord<byte[], byte[]> record) {
            read.add("[" + record.partition() + "," + record.offset() + "]");
        }

        private synchronized boolean hasToLeave() {
            return leaving;
        }

        private synchronized void fail(Exception error) {
            failure = error;
        }

        synchronized int count() {
            if (failure != null) {
                throw new IllegalStateException("member failed: " + failure, failure);
            }
            return partitions.size();
        }

        synchronized TreeSet<Integer> partitions() {
            return new TreeSet<>(partitions);
        }

        synchronized TreeSet<String> read() {
            return new TreeSet<>(read);
        }

        void leave() throws InterruptedException {
            synchronized (this) {
                leaving = true;
            }
            join();
            count();
        }
    }

    @Override
    String group(String group, String topic, int count) throws InterruptedException {
        List<List<TreeSet<Integer>>> stages = new ArrayList<>();
        Member one = new Member(group, topic);
        waitFor("one member", () -> one.count() == 2);
        stages.add(Arrays.asList(one.partitions()));
        Member two = new Member(group, topic);
        waitFor("two members", () -> one.count() == 1 && two.count() == 1);
        stages.add(Arrays.asList(one.partitions(), two.partitions()));
        two.leave();
        TreeSet<String> read = two.read();
        waitFor("one member again", () -> one.count() == 2);
        stages.add(Arrays.asList(one.partitions()));
        waitFor("all records", () -> {
            read.addAll(one.read());
            return read.size() >= count;
        });
        one.leave();
        return "{\"stages\":" + stages + ",\"read\":" + read + "}";
    }

    private static void waitFor(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(20);
        }
    }

    @Override
    String admin(String topic, String name, String value) throws Exception {
        Map<String, String> found = Era.admin(bootstrap, topic, name, value);
        return "{\"partitions\":" + found.get("partitions") + ",\"value\":" + quoted(found.get("value")) + ",\"gone\":"
            + found.get("gone") + "}";
    }
}
