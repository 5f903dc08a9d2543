// Command sarama is the client of that name: BOOTSTRAP.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"clients/contract"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramming is a login by SCRAM, for which sarama has only the frame.
type scramming struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (s *scramming) Begin(user, password, authorized string) error {
	client, err := s.hash.NewClient(user, password, authorized)
	if err == nil {
		s.conversation = client.NewConversation()
	}
	return err
}

func (s *scramming) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }

func (s *scramming) Done() bool { return s.conversation.Done() }

var hashes = map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}

// secure puts the settings into a configuration: TLS, and who logs in.
func secure(config *sarama.Config) error {
	told := contract.Settings
	if retries, err := strconv.Atoi(told["retries"]); err == nil {
		config.Metadata.Retry.Max, config.Producer.Retry.Max = retries, retries
	}
	trusting, err := contract.TLS()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = trusting != nil, trusting
	if mechanism := told["sasl.mechanism"]; mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = told["sasl.username"], told["sasl.password"]
		if hash, is := hashes[mechanism]; is {
			config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramming{hash: hash} }
		}
	}
	return nil
}

type client struct{ bootstrap []string }

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// config asks for the requests of the release that was told, or those of 2.1, the first with all codecs.
func config() (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	if told, err := sarama.ParseKafkaVersion(contract.Release); err == nil {
		config.Version = told
		config.ApiVersionsRequest = told.IsAtLeast(sarama.V0_10_0_0) // before, brokers cannot say what they know
		config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = contract.Patience, contract.Patience, contract.Patience
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 20 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	return config, secure(config)
}

// encoded keeps apart what is empty and what is null.
func encoded(bytes []byte) sarama.Encoder {
	if bytes == nil {
		return nil
	}
	return sarama.ByteEncoder(bytes)
}

func (c client) Produce(topic, codec string, idempotent bool, entries []contract.Entry) ([]int64, error) {
	settings, err := config()
	if err != nil {
		return nil, err
	}
	settings.Producer.Compression = codecs[codec]
	if idempotent {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(c.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	var messages []*sarama.ProducerMessage
	for _, each := range entries {
		message := &sarama.ProducerMessage{Topic: topic, Key: encoded(each.Key), Value: encoded(each.Value), Timestamp: time.UnixMilli(each.Timestamp)}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, producer.Close()
}

func entry(message *sarama.ConsumerMessage) contract.Entry {
	found := contract.Entry{Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli(), Key: message.Key, Value: message.Value}
	if message.Timestamp.IsZero() {
		found.Timestamp = -1
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, contract.Header{Name: string(header.Key), Value: header.Value})
	}
	return found
}

func (c client) Consume(topic string, count int) ([]contract.Entry, error) {
	settings, err := config()
	if err != nil {
		return nil, err
	}
	settings.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(c.bootstrap, settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var entries []contract.Entry
	late := time.After(contract.Patience)
	for len(entries) < count {
		select {
		case message := <-partition.Messages():
			entries = append(entries, entry(message))
		case err := <-partition.Errors():
			return entries, err
		case <-late:
			return entries, nil
		}
	}
	return entries, nil
}

// member is a group session's handler, until `enough` records came (0: until it is told to leave).
type member struct {
	state  contract.State
	group  sarama.ConsumerGroup
	stop   context.CancelFunc
	done   chan struct{}
	enough int
	found  []int64
}

func (m *member) State() *contract.State { return &m.state }

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		m.state.Assign(partitions)
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.state.Assign(nil)
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.state.Add(message.Partition, message.Offset)
		session.MarkMessage(message, "by sarama")
		if m.enough > 0 {
			m.found = append(m.found, message.Offset)
			if len(m.found) == m.enough {
				m.stop()
				return nil
			}
		}
	}
	return nil
}

func (c client) join(group, topic string, enough int, patience time.Duration) (*member, error) {
	settings, err := config()
	if err != nil {
		return nil, err
	}
	consumers, err := sarama.NewConsumerGroup(c.bootstrap, group, settings)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	m := &member{group: consumers, stop: stop, done: make(chan struct{}), enough: enough}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := consumers.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				m.state.Fail(err)
				return
			}
		}
	}()
	return m, nil
}

func (m *member) Leave() error {
	m.stop()
	<-m.done
	return m.group.Close()
}

func (c client) Join(group, topic string) (contract.Member, error) {
	return c.join(group, topic, 0, 10*contract.Patience)
}

func (c client) Resume(group, topic string, first, count int) ([][]int64, error) {
	var found [][]int64
	for _, size := range []int{first, count - first} {
		m, err := c.join(group, topic, size, contract.Patience)
		if err != nil {
			return nil, err
		}
		<-m.done
		if err := m.Leave(); err != nil {
			return nil, err
		}
		found = append(found, m.found)
	}
	return found, nil
}

func (c client) Admin(topic, name, value string) (partitions int, found string, gone bool, err error) {
	settings, err := config()
	if err != nil {
		return
	}
	admin, err := sarama.NewClusterAdmin(c.bootstrap, settings)
	if err != nil {
		return
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{name: &value}}
	if err = admin.CreateTopic(topic, detail, false); err != nil {
		return
	}
	has := func() (bool, error) {
		topics, err := admin.DescribeTopics([]string{topic})
		if err != nil || topics[0].Err != sarama.ErrNoError {
			return false, err
		}
		partitions = len(topics[0].Partitions)
		return partitions > 0, nil
	}
	if err = contract.Until("the topic", has); err != nil {
		return
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}})
	if err != nil {
		return
	}
	for _, each := range entries {
		if each.Name == name {
			found = each.Value
		}
	}
	if err = admin.DeleteTopic(topic); err != nil {
		return
	}
	err = contract.Until("deletion", func() (bool, error) {
		topics, err := admin.ListTopics()
		_, there := topics[topic]
		return !there, err
	})
	return partitions, found, err == nil, err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "sarama BOOTSTRAP")
		os.Exit(2)
	}
	contract.Serve(client{os.Args[1:]})
}
