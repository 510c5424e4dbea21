package qmp

import "context"

// subscriber is one caller of Events. Its fields are guarded by Client.mu.
type subscriber struct {
	ch     chan Event
	closed bool
}

func (s *subscriber) close() {
	if !s.closed {
		s.closed = true
		close(s.ch)
	}
}

// Events returns a channel of the events from now on, before Connect if the
// first ones matter. It is closed when ctx is done or the connection is over.
// It holds Options.Events of them; while it is full, new ones are dropped and
// counted (Dropped). Any number of callers each get all events.
func (c *Client) Events(ctx context.Context) (<-chan Event, error) {
	s := &subscriber{ch: make(chan Event, c.opts.Events)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.subs[s] = struct{}{}
	c.mu.Unlock()
	// AfterFunc holds on to the client until ctx is done; a monitor and its
	// context end together.
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, s)
		s.close()
	})
	return s.ch, nil
}

// publish never blocks: the reader must go on reading replies.
func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		select {
		case s.ch <- e:
		default:
			c.dropped.Add(1)
		}
	}
}
