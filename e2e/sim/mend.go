package sim

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// mender gets pages for a replica from the others that are up.
type mender struct{ p *process }

var _ tree.Repair = mender{}

// each calls use with the page as every other replica has it, until that is enough.
func (m mender) each(ino fsop.Ino, page uint64, use func(data []byte, changed uint64) bool) bool {
	for _, o := range slices.Clone(m.p.r.w.replicas) {
		if p := o.process; o != m.p.r && p != nil && !o.clock.isPaused() {
			if data, changed, err := p.tree.ReadPage(ino, page); err == nil && use(data, changed) {
				return true
			}
		}
	}
	return false
}

// Fetch implements tree.Repair.
func (m mender) Fetch(ino fsop.Ino, page uint64, fits func([]byte, uint64) bool) (data []byte, err error) {
	if !m.each(ino, page, func(b []byte, changed uint64) bool { data = b; return fits(b, changed) }) {
		return nil, errors.New("nobody has the page")
	}
	m.p.r.w.counts.Add("window: damaged page is fetched to be changed")
	return data, nil
}

// Damaged implements tree.Repair. In every other world nobody answers.
func (m mender) Damaged(ino fsop.Ino, page uint64) bool {
	if !m.p.r.w.plan.Mends {
		return false
	}
	return m.mend(ino, page)
}

func (m mender) mend(ino fsop.Ino, page uint64) bool {
	return m.each(ino, page, func(data []byte, changed uint64) bool {
		done, err := m.p.tree.Mend(ino, page, data, changed)
		return err == nil && done
	})
}

// scrub mends the contents of replicas of which nothing else is damaged: they are to
// be equal to the others then.
func (w *world) scrub() {
	for _, r := range w.present() {
		if w.failure() != nil {
			return
		}
		if r.process == nil || !r.damaged || !r.contentsOnly {
			continue
		}
		var done atomic.Bool
		var left []tree.BadPage
		p := r.process
		go func() {
			defer done.Store(true)
			left = p.scrub()
		}()
		w.until("a scrub", patience, done.Load)
		if len(left) == 0 {
			r.damaged = false
			w.counts.Add("window: damaged contents are mended")
		}
	}
}

// scrub mends what it can, and returns what is left.
func (p *process) scrub() (left []tree.BadPage) {
	for ino := fsop.Ino(1); ino != 0; {
		next, _, bad, err := p.tree.ScrubContents(context.Background(), ino, math.MaxInt64)
		if err != nil {
			p.r.w.fail("scrub of replica %d: %v", p.r.member.ID, err)
			return nil
		}
		for _, b := range bad {
			if !(mender{p}).mend(b.Ino, b.Page) {
				left = append(left, b)
			}
		}
		ino = next
	}
	return left
}

// damage notes that a file of a replica is damaged.
func (r *replica) damage(name string) {
	contents := strings.Contains(name, "/content/")
	r.contentsOnly = contents && (!r.damaged || r.contentsOnly)
	r.damaged = true
}
