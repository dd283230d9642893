package fsop

import "math"

var (
	sampleAttr = Attr{
		Ino: 300, Mode: TypeFile | ModeSetUID | 0o755, Nlink: 2, UID: 1000, GID: 100, Rdev: 5, Size: 1 << 40, Blocks: 8,
		Atime: Time{Sec: -1, Nsec: 999_999_999}, Mtime: Time{Sec: 1 << 40, Nsec: 1}, Ctime: Time{Sec: 1_700_000_000, Nsec: 2},
	}
	sampleLock  = LockRange{Kind: Posix, Type: LockWrite, Owner: math.MaxUint64, PID: 42, Start: 10, End: math.MaxUint64}
	sampleNonce = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
)

// sampleOps has one operation of each kind, with every field set.
func sampleOps() []Op {
	name := []byte("na\xffme\n")
	return []Op{
		&Create{Parent: Root, Name: name, Mode: TypeLink | 0o777, UID: 1, GID: 2, Rdev: 3, Target: []byte("../\xfe"), Excl: true},
		&Link{Ino: 7, Parent: 8, Name: name},
		&Unlink{Parent: 8, Name: name, Dir: true},
		&Rename{Parent: 8, Name: name, NewParent: 9, NewName: []byte("new"), Flags: RenameExchange},
		&SetAttr{
			Ino: 7, Valid: SetMode | SetSize | SetAtime, Mode: 0o644, UID: 1, GID: 2, Size: math.MaxUint64,
			Atime: Time{Sec: math.MinInt64, Nsec: 3}, Mtime: Time{Sec: math.MaxInt64, Nsec: 4},
		},
		&Write{Ino: 7, Offset: 1 << 33, Append: true, KillPriv: true, Data: []byte{0, 1, 2}},
		&Fallocate{Ino: 7, Mode: FallocKeepSize | FallocPunchHole, Offset: 4096, Length: 8192, KillPriv: true},
		&SetXattr{Ino: 7, Name: []byte("user.a"), Value: []byte{0, 255}, Flags: XattrCreate},
		&RemoveXattr{Ino: 7, Name: []byte("user.a")},
		&Tmpfile{Parent: 8, Mode: 0o600, UID: 1, GID: 2, Excl: true},
		&Lock{Ino: 7, Lock: sampleLock},
		&Refuse{Errno: ENOSPC},
		&Nop{},
		&Ahead{Stamp: Time{Sec: 1_700_000_000, Nsec: 9}, Ino: 77, Expect: 1 << 60, Op: &Unlink{Parent: 8, Name: name}},
		&Reserve{Count: 4096},
		&Mend{},
		&OpenSession{Nonce: sampleNonce, Name: []byte("node-1:/mnt")},
		&AttachSession{Session: 5, Epoch: 6},
		&EvictSession{Session: 5},
		&Reap{Inos: []Ino{7, 1 << 50}},
		&SetLimits{Bytes: 1 << 30, Inodes: 1000},
		&SetFeature{Level: 2},
		&Own{Session: 5, Owner: []byte("node-1")},
		&Seal{},
		&Lookup{Parent: Root, Name: name},
		&GetAttr{Ino: 7},
		&ReadDir{Ino: 8, Cookie: 1 << 62, MaxBytes: 65536, Plus: true},
		&Read{Ino: 7, Offset: 4096, Length: 131072},
		&ReadLink{Ino: 7},
		&GetXattr{Ino: 7, Name: []byte("user.a")},
		&ListXattr{Ino: 7},
		&StatFSQuery{},
		&Seek{Ino: 7, Offset: 100, Whence: SeekHole},
		&GetLock{Ino: 7, Lock: sampleLock},
		&WaitLock{Ino: 7, Lock: LockRange{Kind: Flock, Type: LockRead, Owner: 3, PID: 4, Start: 1, End: 2}},
		&Open{Ino: 7},
		&ReadMany{Inos: []Ino{7, 1 << 40}},
	}
}

func sampleRequest(op Op) *Request {
	return &Request{Session: 1 << 35, Epoch: 2, Seq: 300, Ack: 299, Op: op}
}

func sampleReplies() map[string]*Reply {
	a := sampleAttr
	l := sampleLock
	return map[string]*Reply{
		"empty": {},
		"errno": {Errno: ENOTEMPTY, Index: 12},
		"every field": {
			Errno: EEXIST, Index: 1 << 40, Leased: true, Exclusive: true, Attrs: []Attr{a, {}},
			Entries: []DirEntry{
				{Ino: 9, Cookie: 1 << 62, Type: 8, Name: []byte("a\xff"), Attr: &a},
				{Ino: 10, Cookie: 1<<62 + 1, Type: 4, Name: []byte("b")},
			},
			EOF: true, Data: []byte("data"), Offset: 77, Count: 4, Lock: &l,
			FS: &StatFS{Bytes: 1 << 40, BytesFree: 1 << 39, Inodes: 1 << 20, InodesFree: 1 << 19}, Session: 5,
		},
	}
}

func sampleEntry() *Entry {
	e := &Entry{Stamp: Time{Sec: 1_700_000_000, Nsec: 5}}
	for i, op := range sampleOps() {
		if !op.Kind().Query() {
			e.Items = append(e.Items, Item{Session: 5, Epoch: 1, Seq: uint64(i + 1), Ack: uint64(i), Op: op})
		}
	}
	return e
}

func sampleMessages() map[string]*Message {
	return map[string]*Message{
		"request": {Kind: MessageRequest, Request: sampleRequest(&GetAttr{Ino: 7})},
		"attach":  {Kind: MessageAttach, Attach: &Attach{Session: 5, Epoch: 6, Nonce: sampleNonce, Name: []byte("node-1"), Token: []byte("tr1.x.y"), Try: 12, Queued: 301}},
		"stream": {Kind: MessageStream, Stream: &Stream{Session: 5, Epoch: 6, First: 300, Ack: 299, Ops: []*Ahead{
			{Stamp: Time{Sec: 1, Nsec: 2}, Ino: 3, Expect: 4, Op: &Create{Parent: Root, Name: []byte("f"), Mode: TypeFile | 0o644}},
			{Stamp: Time{Sec: 1, Nsec: 3}, Expect: 5, Op: &Write{Ino: 3, Data: []byte("data")}},
		}}},
		"keepalive": {Kind: MessageKeepAlive, KeepAlive: &KeepAlive{Session: 5, Epoch: 6}},
		"ack":       {Kind: MessageAck, Ack: &Ack{ID: 9, Open: []Ino{7, 8}}},
		"detach":    {Kind: MessageDetach, Detach: &Detach{Session: 5, Epoch: 6}},
		"status":    {Kind: MessageStatus, Status: &StatusQuery{}},
		"own":       {Kind: MessageOwn, Own: &Own{Session: 5, Owner: []byte("node-1")}},
		"follower":  {Kind: MessageFollowerRead, Follower: &FollowerRead{Token: []byte("secret"), Term: 7, Index: 900, Op: &Read{Ino: 12, Offset: 4096, Length: 8192}}},
		"operate":   {Kind: MessageOperate, Operate: &Operate{Op: &SetLimits{Bytes: 1 << 30}}},
	}
}

func sampleAnswers() map[string]*Answer {
	return map[string]*Answer{
		"failure":  {Failure: &Failure{Code: NotCoordinator, Hint: 3, Detail: "follower"}},
		"reply":    {Reply: &Reply{Errno: ENOENT, Index: 4}},
		"attached": {Attached: &Attached{Session: 5, Epoch: 6, Term: 7, LastSeq: 8, TTL: 3000, Locked: []Ino{7}, BrokeAt: 9, Now: Time{Sec: 1, Nsec: 2}, Room: 1 << 30, Seed: sampleNonce}},
		"kept":     {Kept: &Kept{Term: 7, Now: Time{Sec: 1, Nsec: 2}, Room: 1 << 20}},
	}
}

func sampleNotices() map[string]*Notice {
	return map[string]*Notice{
		"recall":  {Kind: NoticeRecall, ID: 9, Inos: []Ino{7, 1 << 40}},
		"orphans": {Kind: NoticeOrphans, ID: 10, Inos: []Ino{7}},
		"share":   {Kind: NoticeRecall, ID: 9, Inos: []Ino{7}, Share: true},
		"applied": {Kind: NoticeApplied, Seq: 300, Index: 1 << 40},
		"broken":  {Kind: NoticeBroken, Seq: 301, Index: 1 << 40},
		"resign":  {Kind: NoticeResign, Hint: 2},
		"moved":   {Kind: NoticeMoved, ID: 11, Moved: []NameRef{{Root, []byte("a\xff")}, {7, []byte("b")}}},
	}
}
