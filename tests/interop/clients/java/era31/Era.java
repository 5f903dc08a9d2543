import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** 3.1 and later: topics have names and ids. */
final class Era {
    private Era() { }

    static ProducerRecord<byte[], byte[]> record(String topic, Contract.Entry entry) {
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, entry.timestamp, entry.key, entry.value);
        for (int i = 0; i < entry.headerNames.size(); i++) {
            record.headers().add(entry.headerNames.get(i), entry.headerValues.get(i));
        }
        return record;
    }

    static void fill(Contract.Entry entry, ConsumerRecord<byte[], byte[]> record) {
        entry.timestamp = record.timestamp();
        for (Header header : record.headers()) {
            entry.headerNames.add(header.key());
            entry.headerValues.add(header.value());
        }
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        return consumer.poll(Duration.ofMillis(milliseconds));
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(Collections.singleton(partition)).get(partition);
    }

    static int partitions(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(Collections.singletonList(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    static Map<String, String> admin(String bootstrap, String topic, String name, String value) throws Exception {
        return Admin.makeAndDelete(bootstrap, topic, name, value);
    }
}
