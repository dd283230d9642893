package consumer

import (
	"context"
	"errors"
)

// Request names a volume and who wants it.
type Request struct {
	// Volume is the handle that the local driver gave the volume.
	Volume string `json:"volume"`
	// Consumer is who acquires, the same in every call about that acquisition: a
	// DNS-1123 subdomain, for example "replica-host" and what it serves.
	Consumer string `json:"consumer"`
}

// Acquisition is a volume that a consumer holds.
type Acquisition struct {
	Volume   string `json:"volume"`
	Consumer string `json:"consumer"`
	// Name is the mount's name beneath the consumer mount root, for consumers that
	// have that root at another path than the driver.
	Name string `json:"name"`
	// Path is the mount as the driver sees it: the root and Name.
	Path string `json:"path"`
	// Device and Inode are those of the volume's folder (stat), the same in every
	// mount namespace of the machine until it restarts. What is at Path and has
	// others is not the volume.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Mounted says that the bind mount was there when the driver looked.
	Mounted bool `json:"mounted"`
}

// Service is the same at both ends of the socket. Safe for concurrent use.
type Service interface {
	// Acquire records the acquisition and makes the mount. It can be repeated by
	// the same consumer, which gets the same answer, with the mount made again if
	// it is gone.
	//
	// ErrNotFound: there is no such volume on this node. ErrHeld: another consumer
	// has it. ErrInUse: it is mounted elsewhere, which the message names.
	Acquire(ctx context.Context, r Request) (Acquisition, error)
	// Release takes the mount away, then the record. Releasing what is not held
	// succeeds, also when the volume is gone. ErrHeld: another consumer has it.
	// ErrInUse: the mount is busy; the acquisition stays.
	Release(ctx context.Context, r Request) error
	// List returns every acquisition on this node, ordered by volume.
	List(ctx context.Context) ([]Acquisition, error)
}

// The kinds of refusal, which cross the socket. errors.Is tells them apart.
var (
	ErrNotFound = errors.New("no such volume on this node")
	ErrHeld     = errors.New("held by another consumer")
	ErrInUse    = errors.New("in use")
	ErrInvalid  = errors.New("invalid request")
)
