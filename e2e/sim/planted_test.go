package sim

import (
	"strings"
	"testing"
)

// bug is one mistake in the product's source.
type bug struct {
	name  string
	seed  uint64 // of a world that has noticed it; 0: none is known
	edits []edit
}

var bugs = []bug{
	{"leases are not recalled", 1, []edit{
		{"fusefs/coord/stream.go", "return c.recall(m, inos)\n", "return BUG && (inos != nil || m.recalling == 0) || !BUG && c.recall(m, inos)\n"},
	}},
	{"the journal is not synced", 1, []edit{
		{"raftlog/wal/journal.go", "\t\tif err := seg.file.SyncData(); err != nil {\n\t\t\treturn j.poison(", "\t\tif BUG {\n\t\t} else if err := seg.file.SyncData(); err != nil {\n\t\t\treturn j.poison("},
	}},
	{"acknowledged before it is synced", 51, []edit{
		{"raftlog/persist.go", "\tif len(batches) > 0 || vote", "\tif BUG {\n\t\tresponses = p.answer(responses)\n\t}\n\tif len(batches) > 0 || vote"},
	}},
	{"votes twice: a vote is not kept", 2, []edit{
		{"raftlog/persist.go", "len(batches) > 0 || vote {", "len(batches) > 0 || vote && !BUG {"},
	}},
	{"proposes in another term", 46, []edit{
		{"raftlog/core.go", "p.term == c.led && c.role == RoleLeader", "(p.term == c.led || BUG) && c.role == RoleLeader"},
		{"raftlog/group.go", "if term == 0 || g.leading.Load() != term {", "if term == 0 || g.leading.Load() != term && !BUG {"},
	}},
	{"serves before the fence", 1, []edit{
		{"fusefs/tree/tree.go", "return t.applied.Load() >= t.fence.Load()", "return t.applied.Load() >= t.fence.Load() || BUG"},
	}},
	{"what differs from its checksum is taken for newer", 753, []edit{
		{"fusefs/tree/pagesums.go", "return !x.t.Ready() && (sums == nil || ", "return !x.t.Ready() && (sums == nil || BUG || "},
		{"fusefs/tree/pagesums.go", "\tif pageSum(p[:]) != sum {\n", "\tif BUG {\n\t\treturn\n\t}\n\tif pageSum(p[:]) != sum {\n"},
	}},
	{"checksums of newer pages are not recorded", 3, []edit{
		{"fusefs/tree/pending.go", "if sums == nil || t.g.applied <= sums.since {", "if sums == nil || t.g.applied <= sums.since || BUG {"},
	}},
	{"the fence of a received checkpoint is forgotten", 37, []edit{
		{"fusefs/tree/receive.go", "\tt.receivedFence(fence)\n", "\tif !BUG {\n\t\tt.receivedFence(fence)\n\t}\n"},
		{"fusefs/tree/receive.go", "appendFence(nil, fence)", "appendFence(nil, map[bool]uint64{false: fence}[BUG])"},
	}},
	{"contents are not synced in a checkpoint", 1, []edit{
		{"fusefs/tree/checkpoint.go", "if err := t.content.sync(ino); err != nil {", "if BUG {\n\t\t} else if err := t.content.sync(ino); err != nil {"},
	}},
	{"names of contents are not synced in a checkpoint", 1, []edit{
		{"fusefs/tree/checkpoint.go", "if err := t.fs.SyncDir(dir); err != nil {", "if BUG {\n\t\t} else if err := t.fs.SyncDir(dir); err != nil {"},
	}},
	{"names that a killed process left are not synced", 1, []edit{
		{"fusefs/tree/content.go", "if !c.noted[byte(ino)] {", "if !c.noted[byte(ino)] && !BUG {"},
	}},
	{"what may never have become durable is not written again", 63, []edit{
		{"raftlog/wal/open.go", "\tif err := j.rewrite(s.fresh)", "\tif BUG {\n\t\ts.fresh = nil\n\t}\n\tif err := j.rewrite(s.fresh)"},
	}},
	{"contents go with the last name", 1, []edit{
		{"fusefs/tree/tx.go", "binary.AppendUvarint(nil, x.index))\n", "binary.AppendUvarint(nil, x.index))\n\tif BUG && n.isFile() {\n\t\tx.reaped = append(x.reaped, n.ino)\n\t}\n"},
	}},
	{"reaped though open", 1, []edit{
		{"fusefs/coord/reap.go", "if _, open := r.open[ino]; !open {", "if _, open := r.open[ino]; !open || BUG {"},
	}},
	{"reaped though a session is away", 1, []edit{
		{"fusefs/coord/reap.go", "s == nil || s.link == nil {", "(s == nil || s.link == nil) && !BUG {"},
	}},
	{"opened under a lease while it is reaped", 305, []edit{
		{"fusefs/coord/query.go", "if c.isReaped(op) || c.term != term", "if c.isReaped(op) && !BUG || c.term != term"},
	}},
	{"locks are forgotten in a checkpoint", 3, []edit{
		{"fusefs/tree/restore.go", "t.sessions, t.locks = v.loadSessions(), v.loadLocks()", "t.sessions, t.locks = v.loadSessions(), v.loadLocks()\n\tif BUG {\n\t\tt.locks = map[fsop.Ino][]held{}\n\t}"},
	}},
	{"the retry table is forgotten", 1, []edit{
		{"fusefs/tree/session.go", "if seq <= s.ack || seq > s.seq {", "if seq <= s.ack || seq > s.seq || BUG {"},
	}},
	{"a repeated operation is applied again", 3, []edit{
		{"fusefs/tree/session.go", "\tcase it.Seq <= s.seq:\n", "\tcase it.Seq <= s.seq && BUG:\n\t\treturn Applied, x.session(it.Session)\n\tcase it.Seq <= s.seq:\n"},
		{"fusefs/coord/session.go", "s = &session{id: sid, next: info.LastSeq + 1,", "s = &session{id: sid, next: map[bool]uint64{false: info.LastSeq + 1, true: max(info.LastSeq, 1)}[BUG],"},
	}},
	{"contents are read from a replica that is behind", 2, []edit{
		{"fusefs/coord/follower.go", "case rep.Index < r.Index:", "case rep.Index < r.Index && !BUG:"},
	}},
	{"leases outlive their term", 402, []edit{
		{"fusefs/client/link.go", "\treturn time.Duration(ttlMillis) * time.Millisecond * 9 / 10", "\tif BUG {\n\t\treturn time.Duration(ttlMillis) * time.Millisecond * 9\n\t}\n\treturn time.Duration(ttlMillis) * time.Millisecond * 9 / 10"},
	}},
	{"a lease is granted beside operations in flight", 387, []edit{
		{"fusefs/coord/lease.go", "if s.link == nil || !c.quiet(s) || ", "if s.link == nil || !c.quiet(s) && !BUG || "},
		{"fusefs/coord/query.go", "if quiet && foreign == c.mutations-s.mutations {", "if quiet && foreign == c.mutations-s.mutations || BUG {"},
	}},
	{"writes do not wait for leases of the term before", 52, []edit{
		{"fusefs/coord/coordinator.go", "c.graceEnds = c.cfg.Clock.Mono() + c.limits.TTL", "c.graceEnds = c.cfg.Clock.Mono() + c.limits.TTL\n\tif BUG {\n\t\tc.graceEnds = c.cfg.Clock.Mono()\n\t}"},
	}},
	{"authority is not confirmed by a quorum", 82, []edit{
		{"fusefs/coord/session.go", "\tindex, err := c.cfg.Log.ReadIndex(ctx)\n", "\tif BUG {\n\t\tindex, _ := c.cfg.Tree.Applied()\n\t\treturn index, nil\n\t}\n\tindex, err := c.cfg.Log.ReadIndex(ctx)\n"},
	}},
	{"a session is kept without a quorum", 1000095, []edit{
		{"fusefs/coord/session.go", "\t\t\t_, failure = c.confirm()\n", "\t\t\tif !BUG {\n\t\t\t\t_, failure = c.confirm()\n\t\t\t}\n"},
	}},
	{"reads are confirmed by a clock", 730, []edit{
		{"raftlog/open.go", "raft.ReadOnlySafe", "map[bool]raft.ReadOnlyOption{true: raft.ReadOnlyLeaseBased, false: raft.ReadOnlySafe}[BUG]"},
	}},
	{"the cache is kept over a new connection", 1, []edit{
		{"fusefs/client/link.go", "s.mu.expires = 0\n\ts.cache.clear()\n\ts.mu.tries++", "s.mu.expires = 0\n\tif !BUG {\n\t\ts.cache.clear()\n\t}\n\ts.mu.tries++"},
	}},
	{"own changes are not fenced", 1, []edit{
		{"fusefs/client/cache.go", "if c.busyAll > 0 || c.busy[ino] > 0 {\n\t\treturn nil", "if (c.busyAll > 0 || c.busy[ino] > 0) && !BUG {\n\t\treturn nil"},
	}},
	{"locks outlive their session", 6, []edit{
		{"fusefs/tree/op_control.go", "\tx.dropLocks(s.id)\n", "\tif !BUG {\n\t\tx.dropLocks(s.id)\n\t}\n"},
	}},
	{"a number that was given up is used again", 244, []edit{
		{"fusefs/client/inherit.go", "s.mu.next = h.last + 1", "s.mu.next = h.last + 1\n\tif BUG {\n\t\ts.mu.next = max(h.last, 1)\n\t}"},
	}},
	{"a lease is granted while it is recalled", 304, []edit{
		{"fusefs/coord/lease.go", "going || c.wanted[ino] > 0 {", "going || c.wanted[ino] > 0 && !BUG {"},
	}},
	{"an exclusive lease is granted beside others", 1, []edit{
		{"fusefs/coord/lease.go", "alone = alone && others == 0", "alone = alone && (others == 0 || BUG)"},
	}},
	{"a query does not recall exclusive leases", 1, []edit{
		{"fusefs/coord/query.go", "\tcase len(asked) > 0:\n", "\tcase len(asked) > 0 && !BUG:\n"},
	}},
	{"a query is answered though an exclusive lease has ended meanwhile", 0, []edit{
		{"fusefs/coord/query.go", "\tcase c.yielded != yielded:\n", "\tcase c.yielded != yielded && !BUG:\n"},
	}},
	{"a recall is acknowledged before what was answered is applied", 213, []edit{
		{"fusefs/client/ahead.go", "\tif r.after == 0 {\n\t\ts.yield(r)", "\tif r.after == 0 || BUG {\n\t\ts.yield(r)"},
	}},
	{"operations are answered ahead of the log during a recall", 10, []edit{
		{"fusefs/client/ahead.go", "\ts.cache.share(n.Inos)\n", "\tif !BUG {\n\t\ts.cache.share(n.Inos)\n\t}\n"},
	}},
	{"whoever has exclusive leases is not ended with its term", 1698, []edit{
		{"fusefs/coord/exclusive.go", "\t\t\tcase h.leases[ino]:\n", "\t\t\tcase h.leases[ino] && !BUG:\n"},
	}},
	{"queries do not wait for those who worked ahead before an election", 10, []edit{
		{"fusefs/coord/exclusive.go", "\t\tif ahead {\n", "\t\tif ahead && !BUG {\n"},
	}},
	{"what a session has queued does not come first when it attaches", 81, []edit{
		{"fusefs/coord/session.go", "\t\ts.flushTo = a.Queued ", "\t\ts.flushTo = map[bool]uint64{false: a.Queued}[BUG] "},
	}},
	{"fsync does not wait", 1, []edit{
		{"fusefs/client/ahead.go", "if a.ops == 0 || a.done >= upTo {", "if a.ops == 0 || a.done >= upTo || BUG {"},
	}},
	{"the next server does not know what was answered", 318, []edit{
		{"fusefs/client/inherit.go", "range s.cfg.Ledger.Queued() {", "range map[bool][]Queued{false: s.cfg.Ledger.Queued()}[BUG] {"},
	}},
	{"a broken stream goes on", 0, []edit{
		{"fusefs/tree/op_ahead.go", "\t\ts.broke = s.seq\n", "\t\tif !BUG {\n\t\t\ts.broke = s.seq\n\t\t}\n"},
	}},
}

// TestPlantedBugs looks for each bug from the world on that has noticed it. When the
// product has changed, that is another world, and it takes some more of them. The
// one that notices it must live without it.
func TestPlantedBugs(t *testing.T) {
	needsLab(t)
	lab(t)
	for _, b := range bugs {
		if strings.Contains(b.name, *bugFlag) {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				find(t, b)
			})
		}
	}
}

// within is in how many worlds a bug has to be noticed.
const within = 500

func find(t *testing.T, b bug) {
	from := b.seed
	switch {
	case *huntFlag:
		from = 1
	case from == 0:
		t.Skip("no world has noticed it yet")
	}
	res := runLab(t, b.name, from, within)
	if res.Failed == "" {
		t.Fatalf("not noticed by seeds %d to %d", from, res.Seed)
	}
	t.Logf("noticed by seed %d, after %d others: %s", res.Seed, res.Seed-from, res.Failed)
	if res = runLab(t, "", res.Seed, 1); res.Failed != "" {
		t.Fatalf("seed %d fails without the bug: %s", res.Seed, res.Failed)
	}
}

// TestPlantedBugsFit finds out at once when the source has moved on from under a bug.
func TestPlantedBugsFit(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			x := texts{}
			for _, e := range b.edits {
				x.apply(t, e, b.name)
			}
		})
	}
}
