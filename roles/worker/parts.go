package worker

import (
	"time"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
)

// The parts of a worker that join the log and the filesystem, for whoever puts a
// replica together without a machine's clock, disk and network: the simulation.
type (
	// Machine gives the tree and the coordinator the shape that the log drives.
	Machine = machine
	// Space refuses growth before it is logged.
	Space = space
)

// NewMachine joins a tree and the coordinator in front of it.
func NewMachine(t *tree.Tree, c *coord.Coordinator) *Machine { return newMachine(t, c) }

// Leads is the term that the replica leads in, 0 for none.
func (m *machine) Leads() uint64 { return m.leads.Load() }

// NewSpace returns what refuses growth that does not fit the tree's disk or
// quota. now is the wall clock.
func NewSpace(t *tree.Tree, now func() time.Time) *Space {
	return &space{tree: t, now: now, short: make(chan struct{}, 1)}
}

// Refuse returns the errno with which op must not be logged, or OK. It is the
// coordinator's Config.Refuse.
func (s *space) Refuse(op fsop.Op) fsop.Errno { return s.refuse(op) }

// Room is by how many bytes files may grow before Refuse is asked. It is the
// coordinator's Config.Room.
func (s *space) Room() uint64 { return s.room() }
