package boot

import (
	"context"
	"errors"
	"fmt"
)

// ErrEnded is the error of a part that ended although nobody told it to.
var ErrEnded = errors.New("ended unexpectedly")

// Group is a set of named parts that run together: when one ends, all end.
type Group struct {
	parts []part
}

type part struct {
	name string
	run  func(context.Context) error
}

// Add adds a part. run blocks until all that it started has ended; it ends
// soon after its context does.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.parts = append(g.parts, part{name, run})
}

// Run runs the parts until ctx ends or one of them does, then waits for all.
// The error is the first part's that failed by itself; nil after ctx.
func (g *Group) Run(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, len(g.parts))
	for _, p := range g.parts {
		go func() {
			err := p.run(inner)
			if inner.Err() != nil {
				// A part that was told to end may still report what it could
				// not finish, but not that it was told.
				if errors.Is(err, context.Canceled) {
					err = nil
				}
			} else if err == nil {
				err = ErrEnded
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", p.name, err)
				cancel(err)
			}
			ended <- err
		}()
	}
	var first error
	for range g.parts {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
	}
	return first
}
