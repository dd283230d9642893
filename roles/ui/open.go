package ui

import (
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/live"
)

// sessionsShown is how many sessions a page shows.
const sessionsShown = 100

// open is who has a volume open.
type open struct {
	Unknown  string // why nobody knows
	Sessions []session
	More     int // that are not shown
}

type session struct {
	Node, Since string
	Locks       int // inodes on which it holds locks
	Owner       bool
}

// openOn is what the coordinator says, if one answers.
func openOn(a *live.Answers, err error) (o open) {
	if err != nil {
		return open{Unknown: boot.OneLine(err)}
	}
	c := a.Best()
	if c == nil {
		return open{Unknown: "no worker that answers coordinates"}
	}
	for i, s := range c.Sessions {
		if i == sessionsShown {
			o.More = len(c.Sessions) - i
			break
		}
		o.Sessions = append(o.Sessions, session{
			Node: s.Name, Since: stamp(s.Opened), Locks: s.Locks, Owner: c.Owner != nil && c.Owner.Session == s.ID,
		})
	}
	return o
}
