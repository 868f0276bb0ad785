package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// JetStream, file storage: asynchronous publishes, each confirmed; every message acknowledged. With replicas the publisher
// talks to the server that leads the stream, the consumer to the one that leads the consumer.
type natsBroker struct {
	o     options
	js    jetstream.JetStream
	under chan natsPublish
	leads string // the name of the server that leads the consumer
}

type natsPublish struct {
	future jetstream.PubAckFuture
	due    int64
}

const (
	natsStream  = "LOAD"
	natsSubject = "load"
	natsPending = 20000
	natsAgain   = 50 * time.Millisecond // between looks at members that are not in step yet
)

// connect opens a connection to the server of this name; with no name, to the first of the addresses.
func (b *natsBroker) connect(name string) (jetstream.JetStream, error) {
	for _, address := range b.o.addresses {
		conn, err := nats.Connect("nats://" + address)
		if err != nil {
			return nil, err
		}
		if name == "" || conn.ConnectedServerName() == name {
			return jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<20))
		}
		conn.Close()
	}
	return nil, fmt.Errorf("no address is that of the server %s", name)
}

func (b *natsBroker) Setup() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	js, err := b.connect("")
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	if err = js.DeleteStream(ctx, natsStream); err != nil && err != jetstream.ErrStreamNotFound {
		return err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsSubject}, Storage: jetstream.FileStorage, Replicas: b.o.replicas,
	})
	if err != nil {
		return err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "load", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: natsPending,
	})
	if err != nil {
		return err
	}
	streamLeader, err := b.leader(ctx, func() (*jetstream.ClusterInfo, error) {
		info, err := stream.Info(ctx)
		if err != nil {
			return nil, err
		}
		return info.Cluster, nil
	})
	if err != nil {
		return err
	}
	b.leads, err = b.leader(ctx, func() (*jetstream.ClusterInfo, error) {
		info, err := consumer.Info(ctx)
		if err != nil {
			return nil, err
		}
		return info.Cluster, nil
	})
	if err != nil {
		return err
	}
	b.js, err = b.connect(streamLeader)
	return err
}

// leader waits until all members are there and in step, and names the one that leads; of a single server, nobody.
func (b *natsBroker) leader(ctx context.Context, look func() (*jetstream.ClusterInfo, error)) (string, error) {
	if b.o.replicas == 1 {
		return "", nil
	}
	for {
		info, err := look()
		if err != nil {
			return "", err
		}
		if info != nil && info.Leader != "" {
			inStep := 1
			for _, other := range info.Replicas {
				if other.Current && !other.Offline {
					inStep++
				}
			}
			if inStep == b.o.replicas {
				return info.Leader, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("not all of %d members are in step: %+v", b.o.replicas, info)
		case <-time.After(natsAgain):
		}
	}
}

func (b *natsBroker) StartPublisher(confirmed func(due int64)) error {
	b.under = make(chan natsPublish, 1<<20)
	go func() {
		for p := range b.under {
			select {
			case <-p.future.Ok():
				confirmed(p.due)
			case err := <-p.future.Err():
				fail("nats publish", err)
			}
		}
	}()
	return nil
}

func (b *natsBroker) Publish(body []byte, due int64) error {
	// The client keeps the bytes until they are written: each message needs its own.
	future, err := b.js.PublishAsync(natsSubject, append([]byte(nil), body...))
	if err != nil {
		return err
	}
	b.under <- natsPublish{future, due}
	return nil
}

func (b *natsBroker) Flush() error { return nil } // the client flushes by itself

func (b *natsBroker) Consume(deliver func([]byte), ready func(), stop <-chan struct{}) error {
	js, err := b.connect(b.leads)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(context.Background(), natsStream, "load")
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		deliver(m.Data())
		if err := m.Ack(); err != nil {
			fmt.Println("ack:", err)
		}
	}, jetstream.PullMaxMessages(5000))
	if err != nil {
		return err
	}
	ready()
	<-stop
	consuming.Stop()
	return nil
}
