import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/** The admin client, from 0.11 on. */
final class Admin {
    private Admin() { }

    static Map<String, String> makeAndDelete(String bootstrap, String topic, String name, String value) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        Map<String, String> found = new HashMap<>();
        try (AdminClient admin = AdminClient.create(Contract.impatient(properties))) {
            NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Collections.singletonMap(name, value));
            admin.createTopics(Collections.singletonList(wanted)).all().get();
            long deadline = System.currentTimeMillis() + Contract.PATIENCE_MS;
            while (!admin.listTopics().names().get().contains(topic) && System.currentTimeMillis() < deadline) {
                Thread.sleep(50);  // a broker may answer before it has told itself
            }
            found.put("partitions", Integer.toString(Era.partitions(admin, topic)));
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            found.put("value", admin.describeConfigs(Collections.singletonList(resource)).all().get().get(resource).get(name).value());
            admin.deleteTopics(Collections.singletonList(topic)).all().get();
            while (admin.listTopics().names().get().contains(topic) && System.currentTimeMillis() < deadline) {
                Thread.sleep(50);
            }
            found.put("gone", Boolean.toString(!admin.listTopics().names().get().contains(topic)));
        }
        return found;
    }
}
