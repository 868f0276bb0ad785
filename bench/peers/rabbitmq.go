package main

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A quorum queue, led by the node it is declared at: persistent messages, each confirmed; acknowledged by the hundred, or one by one at a given rate.
type rabbitBroker struct {
	o       options
	channel *amqp.Channel
	dues    chan int64
}

const (
	rabbitQueue    = "load"
	rabbitPrefetch = 2000
	rabbitAckEvery = 100
	rabbitAckIdle  = 5 * time.Millisecond // the rest of a hundred is acknowledged after this
)

func (b *rabbitBroker) dial() (*amqp.Channel, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + b.o.addresses[0] + "/")
	if err != nil {
		return nil, err
	}
	return conn.Channel()
}

func (b *rabbitBroker) Setup() (err error) {
	if b.channel, err = b.dial(); err != nil {
		return err
	}
	if _, err = b.channel.QueueDelete(rabbitQueue, false, false, false); err != nil {
		return err
	}
	_, err = b.channel.QueueDeclare(rabbitQueue, true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-quorum-initial-group-size": b.o.replicas,
	})
	return err
}

func (b *rabbitBroker) StartPublisher(confirmed func(due int64)) error {
	if err := b.channel.Confirm(false); err != nil {
		return err
	}
	b.dues = make(chan int64, 1<<20)
	confirmations := b.channel.NotifyPublish(make(chan amqp.Confirmation, b.o.window+1024))
	go func() {
		for confirmation := range confirmations {
			if !confirmation.Ack {
				fail("rabbitmq refused a message", nil)
			}
			confirmed(<-b.dues)
		}
	}()
	return nil
}

func (b *rabbitBroker) Publish(body []byte, due int64) error {
	b.dues <- due
	return b.channel.PublishWithContext(context.Background(), "", rabbitQueue, false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
}

func (b *rabbitBroker) Flush() error { return nil } // the client flushes after every message

func (b *rabbitBroker) Consume(deliver func([]byte), ready func(), stop <-chan struct{}) error {
	channel, err := b.dial()
	if err != nil {
		return err
	}
	if err := channel.Qos(rabbitPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(rabbitQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	ready()
	every := rabbitAckEvery
	if b.o.rate > 0 {
		every = 1
	}
	idle := time.NewTicker(rabbitAckIdle)
	defer idle.Stop()
	var last amqp.Delivery
	unacked := 0
	for {
		select {
		case <-stop:
			return nil
		case last = <-deliveries:
			deliver(last.Body)
			unacked++
		case <-idle.C:
			if unacked == 0 {
				continue
			}
			unacked = every
		}
		if unacked >= every {
			if err := last.Ack(true); err != nil {
				return err
			}
			unacked = 0
		}
	}
}
