package power

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The part of the kernel's FUSE protocol that one regular file as a whole
// filesystem needs, as in linux/fuse.h.
const (
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
)

const (
	headerBytes   = 40
	writeInBytes  = 40
	writeMost     = 1 << 20
	flagMaxPages  = 1 << 22
	flagBigWrites = 1 << 5
	fuseMinor     = 31
	attrSeconds   = 3600
	replyHeader   = 16
)

var order = binary.NativeEndian

// fileServer answers the kernel for a filesystem that is one file.
type fileServer struct {
	dev  *os.File
	disk *store
	size uint64
}

// mountFile mounts such a filesystem over a file.
func mountFile(path string, disk *store, size int64) (*fileServer, error) {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0", dev.Fd())
	if err := unix.Mount("tak-power", path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		dev.Close()
		return nil, fmt.Errorf("mount over %s: %w", path, err)
	}
	return &fileServer{dev, disk, uint64(size)}, nil
}

// serve answers until the file is unmounted.
func (s *fileServer) serve() error {
	fd := int(s.dev.Fd()) // a plain blocking descriptor
	buf := make([]byte, writeMost+64<<10)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		if answer := s.handle(buf[:n]); answer != nil {
			if _, err := unix.Write(fd, answer); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("answer a request: %w", err)
			}
		}
	}
}

// handle returns the answer to one request, nil for none.
func (s *fileServer) handle(req []byte) []byte {
	body := req[headerBytes:]
	switch op := order.Uint32(req[4:]); op {
	case opForget, opBatchForget, opInterrupt:
		return nil
	case opInit:
		return reply(req, 0, s.init(body))
	case opGetattr, opSetattr:
		return reply(req, 0, s.attr())
	case opOpen:
		return reply(req, 0, make([]byte, 16))
	case opRelease, opFlush, opDestroy:
		return reply(req, 0, nil)
	case opStatfs:
		return reply(req, 0, make([]byte, 80))
	case opRead:
		data := make([]byte, order.Uint32(body[16:]))
		if _, err := s.disk.ReadAt(data, int64(order.Uint64(body[8:]))); err != nil {
			return reply(req, errno(err), nil)
		}
		return reply(req, 0, data)
	case opWrite:
		n, err := s.disk.WriteAt(body[writeInBytes:], int64(order.Uint64(body[8:])))
		if err != nil {
			return reply(req, errno(err), nil)
		}
		return reply(req, 0, order.AppendUint64(nil, uint64(n)))
	case opFsync:
		return reply(req, errno(s.disk.Flush()), nil)
	}
	return reply(req, unix.ENOSYS, nil)
}

func errno(err error) unix.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnaligned):
		return unix.EINVAL
	}
	return unix.EIO
}

// reply frames an answer.
func reply(req []byte, e unix.Errno, body []byte) []byte {
	var b bytes.Buffer
	b.Write(order.AppendUint32(nil, uint32(replyHeader+len(body))))
	b.Write(order.AppendUint32(nil, uint32(-int32(e))))
	b.Write(req[8:16]) // the request's number
	b.Write(body)
	return b.Bytes()
}

// init is the answer to the kernel's greeting.
func (s *fileServer) init(body []byte) []byte {
	out := make([]byte, 64)
	order.PutUint32(out, 7)
	order.PutUint32(out[4:], fuseMinor)
	order.PutUint32(out[8:], order.Uint32(body[8:])) // read ahead as it likes
	order.PutUint32(out[12:], flagMaxPages|flagBigWrites)
	order.PutUint16(out[16:], 64) // requests in the background
	order.PutUint16(out[18:], 48)
	order.PutUint32(out[20:], writeMost)
	order.PutUint32(out[24:], 1)
	order.PutUint16(out[28:], writeMost/4096)
	return out
}

// attr describes the file.
func (s *fileServer) attr() []byte {
	out := make([]byte, 104)
	order.PutUint64(out, attrSeconds)
	a := out[16:]
	order.PutUint64(a, 1) // inode
	order.PutUint64(a[8:], s.size)
	order.PutUint64(a[16:], s.size/sectorBytes)
	order.PutUint32(a[60:], unix.S_IFREG|0o600)
	order.PutUint32(a[64:], 1) // links
	order.PutUint32(a[80:], 4096)
	return out
}
