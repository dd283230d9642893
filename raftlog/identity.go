package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"

	"tak-os.org/tak-replicated/raftlog/disk"
)

// Identity says which replica a folder is.
type Identity struct {
	// Volume is the volume's unique id, of 1 to 255 bytes.
	Volume string
	// Replica names the replica within the volume.
	Replica string
	// Incarnation counts the lives of the replica, from 1.
	Incarnation uint64
	// Member is the replica's id in the log, never 0.
	Member uint64
}

func (id Identity) validate() error {
	switch {
	case len(id.Volume) == 0 || len(id.Volume) > 255:
		return errors.New("identity without a volume")
	case len(id.Replica) == 0 || len(id.Replica) > 255:
		return errors.New("identity without a replica")
	case id.Incarnation == 0 || id.Member == 0 || id.Member >= 1<<62:
		return errors.New("identity without incarnation or member id")
	}
	return nil
}

func (id Identity) String() string {
	return fmt.Sprintf("volume %s replica %s incarnation %d member %d",
		id.Volume, id.Replica, id.Incarnation, id.Member)
}

const (
	identityName    = "identity"
	identityVersion = 1
)

// The identity file, integers little endian:
//
//	magic       8 bytes "takrepid"
//	version     u16, 1
//	member      u64
//	incarnation u64
//	volume      u8 length, bytes
//	replica     u8 length, bytes
//	genesis     the first members, in the encoding of member.go; none: the
//	            replica joined later and starts with a checkpoint
//	crc         u32, CRC-32C of everything before
var identityMagic = []byte("takrepid")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is the content of the identity file.
type record struct {
	Identity
	genesis []Member
}

func (r record) encode() []byte {
	b := append([]byte(nil), identityMagic...)
	b = binary.LittleEndian.AppendUint16(b, identityVersion)
	b = binary.LittleEndian.AppendUint64(b, r.Member)
	b = binary.LittleEndian.AppendUint64(b, r.Incarnation)
	b = appendString(b, r.Volume)
	b = appendString(b, r.Replica)
	b = appendMembers(b, r.genesis)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeIdentity(b []byte) (record, error) {
	var r record
	body, err := checkedBody(b, identityMagic, identityVersion)
	if err != nil {
		return r, err
	}
	d := decoder{rest: body}
	r.Member = d.u64()
	r.Incarnation = d.u64()
	r.Volume = d.str()
	r.Replica = d.str()
	r.genesis = d.members()
	if err := d.end(); err != nil {
		return r, err
	}
	return r, r.validate()
}

// checkedBody returns what stands between magic and version at the beginning
// and the checksum at the end.
func checkedBody(b, magic []byte, version uint16) ([]byte, error) {
	head := len(magic) + 2
	if len(b) < head+4 || !bytes.Equal(b[:len(magic)], magic) {
		return nil, errors.New("not such a file, or cut")
	}
	if v := binary.LittleEndian.Uint16(b[len(magic):]); v != version {
		return nil, fmt.Errorf("version %d is unknown", v)
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, errors.New("checksum does not match")
	}
	return b[head:end], nil
}

// ReadIdentity tells which replica a folder is, without opening it. It returns
// ErrNotInitialised for a folder without an identity.
func ReadIdentity(fsys disk.FS, dir string) (Identity, error) {
	r, err := readRecord(fsys, dir)
	return r.Identity, err
}

func readRecord(fsys disk.FS, dir string) (record, error) {
	b, err := readSmall(fsys, path.Join(dir, identityName))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, ErrNotInitialised
	}
	if err != nil {
		return record{}, fmt.Errorf("read identity: %w", err)
	}
	r, err := decodeIdentity(b)
	if err != nil {
		return record{}, &StateLostError{Reason: "identity is damaged", Err: err}
	}
	return r, nil
}

const smallFileBytes = 1 << 20

func readSmall(fsys disk.FS, name string) ([]byte, error) {
	return disk.ReadFile(fsys, name, smallFileBytes)
}

// writeSmall replaces a file atomically and durably.
func writeSmall(fsys disk.FS, dir, name string, b []byte) error {
	return disk.WriteFile(fsys, path.Join(dir, name), b)
}

// removeSmall removes a file durably; a missing one is no error.
func removeSmall(fsys disk.FS, dir, name string) error {
	err := fsys.Remove(path.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
