package ctl

import (
	"fmt"
	"os"
	"time"

	"tak-os.org/tak-replicated/roles/boot"
)

// progress shows how far long work is: one line on standard error, on a
// terminal only.
type progress struct {
	what  string
	shows bool
	next  time.Time
	wrote bool
}

const progressEvery = 200 * time.Millisecond

func newProgress(what string) *progress {
	return &progress{what: what, shows: boot.Terminal(os.Stderr)}
}

// at tells how much is done.
func (p *progress) at(format string, args ...any) {
	if now := time.Now(); p.shows && !now.Before(p.next) {
		p.next, p.wrote = now.Add(progressEvery), true
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s: %s", p.what, fmt.Sprintf(format, args...))
	}
}

// done takes the line away.
func (p *progress) done() {
	if p.wrote {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
