package raftlog

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
)

// TestFenceFalls: a fence at entry 10 of term 3, of member 1 of three, whose log
// ends at 7.
func TestFenceFalls(t *testing.T) {
	voters := []uint64{1, 2, 3}
	ends := func(second, third entryID) map[uint64]logEnd {
		return map[uint64]logEnd{2: {last: second, electorate: voters}, 3: {last: third, electorate: voters}}
	}
	for _, row := range []struct {
		name string
		ends map[uint64]logEnd
		want entryID // the fence, 0: lifted
	}{
		{"nobody has more than this one", ends(entryID{7, 3}, entryID{6, 3}), entryID{}},
		{"it falls to what another one has, no further", ends(entryID{6, 3}, entryID{9, 3}), entryID{9, 3}},
		{"somebody has it", ends(entryID{6, 3}, entryID{10, 3}), entryID{10, 3}},
		{"somebody has more", ends(entryID{6, 3}, entryID{12, 3}), entryID{10, 3}},
		{"somebody is in a later term", ends(entryID{6, 3}, entryID{8, 4}), entryID{10, 3}},
		{"one has not answered", map[uint64]logEnd{2: {last: entryID{6, 3}, electorate: voters}}, entryID{10, 3}},
		{
			"there is another voter, which has not answered",
			map[uint64]logEnd{2: {last: entryID{6, 3}, electorate: []uint64{1, 2, 4}}, 3: {last: entryID{6, 3}, electorate: voters}},
			entryID{10, 3},
		},
		{
			"an older log names a voter that was removed for good",
			map[uint64]logEnd{2: {last: entryID{6, 3}, electorate: []uint64{1, 2, 3, 9}}, 3: {last: entryID{6, 3}, electorate: voters}},
			entryID{},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			var members []Member
			for _, id := range voters {
				members = append(members, Member{ID: id, Replica: fmt.Sprint("r", id), Incarnation: 1})
			}
			g := &Group{log: zap.NewNop()}
			g.applied.index.Store(7)
			m := genesis(members)
			c := &core{
				g: g, log: zap.NewNop(), id: 1, membership: newMembership(m.conf, m.members, []uint64{9}),
				store: &storage{first: 8, last: 7, before: 3}, fence: newFence(entryID{10, 3}),
			}
			c.fence.inquiry, c.fence.ends = 5, map[uint64]logEnd{}
			old := logEnd{inquiry: 4, last: entryID{6, 3}, electorate: voters}
			for _, id := range voters[1:] {
				c.told(id, &old) // of an earlier life
			}
			if len(c.fence.ends) > 0 {
				t.Fatal("an answer to another question counts")
			}
			for id, end := range row.ends {
				end.inquiry = 5
				if c.fence == nil {
					t.Fatal("lifted before everybody has answered")
				}
				c.told(id, &end)
			}
			switch {
			case c.fence == nil && row.want == entryID{}:
			case c.fence == nil || c.fence.entryID != row.want:
				t.Fatalf("fence %+v, not %+v", c.fence, row.want)
			}
		})
	}
}
