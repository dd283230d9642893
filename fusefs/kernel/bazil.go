package kernel

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"syscall"
	"unsafe"

	"bazil.org/fuse"
)

// This file is the only one that knows how bazil.org/fuse is built inside. Of
// bazil we use the raw loop: reading and parsing requests. Five things that its
// API does not offer are reached by reflection, and checkBazil proves at start
// that the linked version still has them:
//
//   - a Conn on a descriptor that we opened, mounted and initialised ourselves;
//   - the bytes of requests that bazil does not parse;
//   - giving a request's buffer back without an answer through bazil;
//   - buffers for writes of 1 MiB instead of 128 KiB;
//   - buffers whose pages are in memory (buffers.go).

// maxData is the largest read or write, in bytes, that we negotiate.
const maxData = 1 << 20

// bazilBufSize is the size of bazil's read buffers, in bytes.
//
//go:linkname bazilBufSize bazil.org/fuse.bufSize
var bazilBufSize int

func init() { bazilBufSize = maxData + 4096 }

// bazilProtocol is the newest protocol that bazil parses; its requests have not
// changed since in what we negotiate.
var bazilProtocol = fuse.Protocol{Major: 7, Minor: 33}

// newConn builds a Conn that reads dev as after a successful INIT.
func newConn(dev *os.File) *fuse.Conn {
	c := new(fuse.Conn)
	setField(c, "dev", dev)
	setField(c, "proto", bazilProtocol)
	setField(c, "flags", fuse.InitSetxattrExt)
	return c
}

// setField sets an unexported field; its type was checked by checkBazil.
func setField[T any](c *fuse.Conn, name string, v T) {
	f := reflect.ValueOf(c).Elem().FieldByName(name)
	*(*T)(unsafe.Pointer(f.UnsafeAddr())) = v
}

var (
	msgIndex []int
	bufIndex []int
)

// body returns a request's bytes behind its header. They are valid until
// recycle.
func body(h *fuse.Header) []byte {
	msg := reflect.ValueOf(h).Elem().FieldByIndex(msgIndex).Elem()
	return msg.FieldByIndex(bufIndex).Bytes()[inHeaderSize:]
}

// opcode returns a request's operation number.
func opcode(h *fuse.Header) uint32 {
	msg := reflect.ValueOf(h).Elem().FieldByIndex(msgIndex).Elem()
	return native.Uint32(msg.FieldByIndex(bufIndex).Bytes()[4:])
}

// recycle gives the request's buffer back to bazil. Nothing is sent.
func recycle(h *fuse.Header) { (&fuse.ForgetRequest{Header: *h}).Respond() }

// checkBazil compares the linked bazil with what this file expects of it.
var checkBazil = sync.OnceValue(func() error {
	if err := checkFields(); err != nil {
		return fmt.Errorf("bazil.org/fuse is not the version that this program was written for: %w", err)
	}
	if err := checkRead(); err != nil {
		return fmt.Errorf("bazil.org/fuse does not read as expected: %w", err)
	}
	return nil
})

func checkFields() error {
	if bazilNew == nil {
		return errors.New("there is no pool of messages")
	}
	conn := reflect.TypeFor[fuse.Conn]()
	for name, want := range map[string]reflect.Type{
		"dev":   reflect.TypeFor[*os.File](),
		"proto": reflect.TypeFor[fuse.Protocol](),
		"flags": reflect.TypeFor[fuse.InitFlags](),
	} {
		if f, ok := conn.FieldByName(name); !ok || f.Type != want {
			return fmt.Errorf("field %s of Conn is not a %v", name, want)
		}
	}
	msg, ok := reflect.TypeFor[fuse.Header]().FieldByName("msg")
	if !ok || msg.Type.Kind() != reflect.Pointer || msg.Type.Elem().Kind() != reflect.Struct {
		return errors.New("field msg of Header is not a message")
	}
	buf, ok := msg.Type.Elem().FieldByName("buf")
	if !ok || buf.Type != reflect.TypeFor[[]byte]() {
		return errors.New("field buf of a message is not a byte slice")
	}
	msgIndex, bufIndex = msg.Index, buf.Index
	return nil
}

// checkRead sends two requests through a Conn on a socket: one that bazil does
// not parse, and a write of maxData.
func checkRead() error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer syscall.Close(pair[0])
	dev := os.NewFile(uintptr(pair[1]), "bazil check")
	defer dev.Close()
	syscall.SetsockoptInt(pair[0], syscall.SOL_SOCKET, syscall.SO_SNDBUFFORCE, 4*maxData)
	conn := newConn(dev)

	if err := syscall.Sendto(pair[0], request(opLseek, 7, []byte("lseek")), 0, nil); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	req, err := conn.ReadRequest()
	if err != nil {
		return err
	}
	q, ok := req.(*fuse.UnrecognizedRequest)
	if !ok || q.Opcode != opLseek || opcode(req.Hdr()) != opLseek || q.ID != 7 || string(body(req.Hdr())) != "lseek" {
		return fmt.Errorf("an unknown request arrives as %v", req)
	}
	recycle(req.Hdr())
	return checkBuffer(conn, pair[0])
}

// checkBuffer checks that a buffer holds a write of maxData. Where the socket
// cannot carry one datagram of that size the buffer's size has to do.
func checkBuffer(conn *fuse.Conn, peer int) error {
	in := make([]byte, writeInSize+maxData)
	native.PutUint32(in[16:], maxData)
	if err := syscall.Sendto(peer, request(opWrite, 9, in), syscall.MSG_DONTWAIT, nil); err != nil {
		if bazilBufSize < inHeaderSize+len(in) {
			return fmt.Errorf("buffers have %d bytes", bazilBufSize)
		}
		return nil
	}
	req, err := conn.ReadRequest()
	if err != nil {
		return err
	}
	defer recycle(req.Hdr())
	if w, ok := req.(*fuse.WriteRequest); !ok || len(w.Data) != maxData {
		return errors.New("a write of 1 MiB does not fit")
	}
	return nil
}

// request encodes a request as the kernel would.
func request(op uint32, id uint64, body []byte) []byte {
	b := make([]byte, inHeaderSize, inHeaderSize+len(body))
	native.PutUint32(b, uint32(inHeaderSize+len(body)))
	native.PutUint32(b[4:], op)
	native.PutUint64(b[8:], id)
	return append(b, body...)
}
