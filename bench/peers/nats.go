package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// JetStream, file storage, one replica: asynchronous publishes, each confirmed; every message acknowledged.
type natsBroker struct {
	o      options
	js     jetstream.JetStream
	conn   *nats.Conn
	stream jetstream.Stream
	under  chan natsPublish
}

type natsPublish struct {
	future jetstream.PubAckFuture
	due    int64
}

const (
	natsStream  = "LOAD"
	natsSubject = "load"
	natsPending = 20000
)

func (b *natsBroker) connect() (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect("nats://" + b.o.address)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1<<20))
	return conn, js, err
}

func (b *natsBroker) Setup() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if b.conn, b.js, err = b.connect(); err != nil {
		return err
	}
	if err = b.js.DeleteStream(ctx, natsStream); err != nil && err != jetstream.ErrStreamNotFound {
		return err
	}
	b.stream, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsSubject}, Storage: jetstream.FileStorage, Replicas: 1,
	})
	if err != nil {
		return err
	}
	_, err = b.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "load", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: natsPending,
	})
	return err
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
	_, js, err := b.connect()
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
