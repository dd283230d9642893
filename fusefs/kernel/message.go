package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Messages between a keeper and a serving process: one JSON object a datagram
// of a SOCK_SEQPACKET socket, descriptors beside it. Version 1:
//
//	hello instance      → kept (id, dir, spec, device and ledger)… , end, with
//	                      what the serving process holds open, if anything
//	put id dir spec, device and ledger → ok
//	drop id             → ok
//	notify id num data  → notified num, when the kernel has taken the notification, or
//	                      with an error when it was not given to it; answers to other
//	                      messages may come before (notifier.go)
//	status              → status
//	succeed             → kept…, end, to the keeper that takes this one's place;
//	                      the serving process has ended by then
//	taken               → ok: the successor has everything, this keeper is done
//
// Anything may be answered by refused, with an error for people. Unknown fields
// are ignored; an unknown operation is refused. So that nobody waits for the answer to
// notify of a keeper that does not know it, end says who does. To a serving process the
// keeper may say stop at any time: end the mounts, and end.
type message struct {
	V        int           `json:"v"`
	Op       string        `json:"op"`
	ID       string        `json:"id,omitempty"`
	Dir      []byte        `json:"dir,omitempty"` // bytes: a path need not be text
	Spec     []byte        `json:"spec,omitempty"`
	Instance string        `json:"instance,omitempty"`
	Error    string        `json:"error,omitempty"`
	Num      uint64        `json:"num,omitempty"`
	Data     []byte        `json:"data,omitempty"`
	Notifies bool          `json:"notifies,omitempty"` // in end: the keeper knows notify
	Status   *KeeperStatus `json:"status,omitempty"`
}

// Operations of messages.
const (
	opHello    = "hello"
	opKept     = "kept"
	opEnd      = "end"
	opPut      = "put"
	opDrop     = "drop"
	opStatus   = "status"
	opSucceed  = "succeed"
	opTaken    = "taken"
	opStop     = "stop"
	opNotify   = "notify"
	opNotified = "notified"
	opOK       = "ok"
	opRefused  = "refused"
)

// Bounds of a message.
const (
	messageVersion = 1
	messageMax     = 64 << 10 // bytes
	filesMax       = 2        // descriptors
	specMax        = 32 << 10 // bytes of a mount's spec
)

// KeeperStatus is what a keeper says of itself.
type KeeperStatus struct {
	PID      int      `json:"pid"`
	Instance string   `json:"instance,omitempty"`
	Closed   bool     `json:"closed,omitempty"` // it takes no serving process now
	Server   int      `json:"server"`           // process that serves, 0 while there is none
	Restarts int      `json:"restarts"`         // times that a serving process ended
	Mounts   []string `json:"mounts"`           // ids
}

func encodeMessage(m *message) ([]byte, error) {
	m.V = messageVersion
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > messageMax {
		return nil, fmt.Errorf("message has %d bytes, %d are allowed", len(b), messageMax)
	}
	return b, nil
}

func decodeMessage(b []byte) (*message, error) {
	m := new(message)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	if m.V != messageVersion {
		return nil, fmt.Errorf("message has version %d, this program knows %d", m.V, messageVersion)
	}
	return m, nil
}

func sendMessage(c *net.UnixConn, m *message, files ...*os.File) error {
	b, err := encodeMessage(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, rights, nil)
	return err
}

// recvMessage returns the next message and the descriptors that came with it.
func recvMessage(c *net.UnixConn) (*message, []*os.File, error) {
	b := make([]byte, messageMax)
	oob := make([]byte, unix.CmsgSpace(4*filesMax))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	files, err := receivedFiles(oob[:oobn])
	if n == 0 && err == nil && len(files) == 0 {
		return nil, nil, io.EOF
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("message is too long")
	}
	var m *message
	if err == nil {
		m, err = decodeMessage(b[:n])
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return m, files, nil
}

func receivedFiles(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "from the keeper's socket"))
		}
	}
	return files, nil
}
