package sim

import (
	"crypto/sha256"
	"sync"

	"tak-os.org/tak-replicated/raftlog"
)

// digestEvery is how many entries lie between two comparisons of replicas.
const digestEvery = 16

// audit compares what the replicas do.
type audit struct {
	w  *world
	mu sync.Mutex
	// places is what any replica applied at an index, terms the term for which an
	// entry was proposed, leaders who led a term.
	places  map[uint64]place
	terms   map[[32]byte]uint64
	leaders map[uint64]*replica
	chosen  map[uint64]*replica // who was elected in a term, where that was watched
	digests map[uint64][32]byte
	highest uint64
}

type place struct {
	term uint64
	sum  [32]byte
}

func newAudit(w *world) *audit {
	return &audit{
		w: w, places: map[uint64]place{}, terms: map[[32]byte]uint64{}, leaders: map[uint64]*replica{}, chosen: map[uint64]*replica{},
		digests: map[uint64][32]byte{},
	}
}

func (a *audit) proposed(term uint64, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms[sha256.Sum256(data)] = term
}

// applied checks that everybody has the same entry at an index, and that it is
// in the term in which it was proposed.
func (a *audit) applied(r *replica, e *raftlog.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.highest = max(a.highest, e.Index)
	now := place{term: e.Term}
	if e.Data != nil {
		now.sum = sha256.Sum256(e.Data)
		if term, ok := a.terms[now.sum]; !ok || term != e.Term {
			a.w.fail("entry %d of term %d was proposed in term %d", e.Index, e.Term, term)
		}
	}
	if old, ok := a.places[e.Index]; ok && old != now {
		a.w.fail("replica %d applies another entry at %d: of term %d, not %d", r.member.ID, e.Index, e.Term, old.term)
	}
	a.places[e.Index] = now
	a.w.streams.entry(e)
}

// elected notes who takes itself for the leader of a term.
func (a *audit) elected(r *replica, term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.chosen[term]; old != nil && old != r {
		a.w.fail("replicas %d and %d are both elected in term %d", old.member.ID, r.member.ID, term)
	}
	a.chosen[term] = r
}

func (a *audit) leads(r *replica, term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.leaders[term]; old != nil && old != r {
		a.w.fail("replicas %d and %d both lead in term %d", old.member.ID, r.member.ID, term)
	}
	a.leaders[term] = r
	a.w.counts.Add("window: election won")
	if a.w.clients.unanswered() > 0 {
		a.w.counts.Add("window: election with unanswered operations")
	}
}

// digest compares a replica that stands still with the others at its index.
func (a *audit) digest(p *process) {
	if !p.tree.Ready() || p.r.damaged {
		return // only a scrub knows whether what was damaged is whole again
	}
	index, _ := p.tree.Applied()
	sum, err := p.tree.Digest()
	if err != nil {
		if p.power.remains() == nil && p.r.process == p {
			a.w.fail("digest of replica %d: %v", p.r.member.ID, err)
		}
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.w.counts.Add("digest taken")
	old, ok := a.digests[index]
	if ok && old != sum {
		a.w.fail("replica %d differs at %d", p.r.member.ID, index)
	}
	if ok {
		a.w.counts.Add("digest compared")
	}
	a.digests[index] = sum
}
