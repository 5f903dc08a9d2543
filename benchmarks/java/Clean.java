import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Kafka's own log cleaner on partition folders, one after the other; tells the CPU seconds of each. */
public class Clean {
    public static void main(String[] folders) throws Exception {
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (String folder : folders) {
            Properties properties = new Properties();
            properties.put("cleanup.policy", "compact");
            LogConfig config = new LogConfig(properties);
            KafkaScheduler scheduler = new KafkaScheduler(1);
            scheduler.startup();
            UnifiedLog log = UnifiedLog.apply(
                new File(folder), config, 0L, 0L, scheduler, new BrokerTopicStats(false), Time.SYSTEM, 300000,
                new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(10), true,
                Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            log.roll(Option.empty());
            long before = log.size();
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
            SkimpyOffsetMap map = new SkimpyOffsetMap(Integer.getInteger("keys.mib") << 20, "MD5");
            Cleaner cleaner = new Cleaner(0, map, 256 << 10, 1048588, 0.9, throttler, Time.SYSTEM,
                new AbstractFunction1<TopicPartition, BoxedUnit>() {
                    @Override
                    public BoxedUnit apply(TopicPartition partition) {
                        return BoxedUnit.UNIT;
                    }
                });
            long start = system.getProcessCpuTime();
            cleaner.doClean(
                new LogToClean(log.topicPartition(), log, 0L, log.activeSegment().baseOffset(), false),
                System.currentTimeMillis());
            double seconds = (system.getProcessCpuTime() - start) / 1e9;
            System.out.println("{\"seconds\": " + seconds + ", \"bytes\": " + before + ", \"after\": " + log.size() + "}");
            scheduler.shutdown();
            log.close();
        }
    }
}
