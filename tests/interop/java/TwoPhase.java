import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Commits in two phases as Flink's connector does with Kafka 3.x, which has no interface for it: BOOTSTRAP TOPIC ID PHASE.
 * Phase "prepare" writes ten records, prints the producer's id and epoch, and ends without ending the transaction.
 * Phase "commit" or "abort" has two arguments more, that id and epoch: it ends the transaction of the process before.
 */
public final class TwoPhase {
    private TwoPhase() { }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("transactional.id", args[2]);
        properties.put("max.block.ms", "200000");
        properties.put("delivery.timeout.ms", "200000");
        properties.put("transaction.timeout.ms", "600000");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        Object manager = field(producer, "transactionManager");
        if (args[3].equals("prepare")) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(args[1], 0, null, args[2] + "-" + i));
            }
            producer.flush();
            Object pair = field(manager, "producerIdAndEpoch");
            System.out.println(field(pair, "producerId") + " " + field(pair, "epoch"));
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        resume(manager, Long.parseLong(args[4]), Short.parseShort(args[5]));
        if (args[3].equals("commit")) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        producer.close();
    }

    private static void resume(Object manager, long producerId, short epoch) throws Exception {
        synchronized (manager) {
            transition(manager, "INITIALIZING");
            Object partitions = field(manager, "txnPartitionMap");
            Method reset = partitions.getClass().getDeclaredMethod("reset");
            reset.setAccessible(true);
            reset.invoke(partitions);
            Object pair = field(manager, "producerIdAndEpoch");
            var make = pair.getClass().getDeclaredConstructor(long.class, short.class);
            make.setAccessible(true);
            set(manager, "producerIdAndEpoch", make.newInstance(producerId, epoch));
            transition(manager, "READY");
            transition(manager, "IN_TRANSACTION");
            set(manager, "transactionStarted", true);
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void transition(Object manager, String name) throws Exception {
        Class state = Class.forName(manager.getClass().getName() + "$State");
        Method to = manager.getClass().getDeclaredMethod("transitionTo", state);
        to.setAccessible(true);
        to.invoke(manager, Enum.valueOf(state, name));
    }

    private static Object field(Object of, String name) throws Exception {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found.get(of);
    }

    private static void set(Object of, String name, Object value) throws Exception {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        found.set(of, value);
    }
}
