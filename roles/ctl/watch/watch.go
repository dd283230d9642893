// Package watch shows something once, or again and again until it is
// interrupted, and turns health into an exit code. It keeps nothing.
package watch

import (
	"context"
	"fmt"
	"io"
	"time"

	"tak-os.org/tak-replicated/kube/api"
)

// Exit codes of a command that tells how something is.
const (
	ExitDegraded    = 4
	ExitUnavailable = 5
)

// verdict is the error of a command that has shown something that is not well.
type verdict struct {
	what   string
	health api.Health
}

func (v verdict) Error() string { return v.what + " is " + string(v.health) }

// ExitCode implements boot.Coder.
func (v verdict) ExitCode() int {
	if v.health == api.Unavailable {
		return ExitUnavailable
	}
	return ExitDegraded
}

// Verdict returns what ends the program with the exit code of a health: nil for
// what is healthy, or changes as it was asked to.
func Verdict(what string, h api.Health) error {
	if h.Worse(api.Changing) {
		return verdict{what, h}
	}
	return nil
}

// Loop is how something is shown again and again.
type Loop struct {
	On    bool          // else once
	Every time.Duration // from one time to the next
	Clear bool          // the screen, before each time
}

// Run shows until ctx ends, and returns what the last time returned. Once, when
// the loop is not on.
func (l Loop) Run(ctx context.Context, w io.Writer, show func(ctx context.Context, w io.Writer) error) error {
	for first := true; ; first = false {
		switch {
		case l.On && l.Clear:
			fmt.Fprint(w, "\x1b[H\x1b[2J")
		case !first:
			fmt.Fprintln(w)
		}
		err := show(ctx, w)
		if !l.On {
			return err
		}
		if err != nil {
			fmt.Fprintln(w, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(l.Every):
		}
	}
}
