package fsop

import "fmt"

// newOp returns an empty operation of the kind, nil when it is unknown.
func newOp(k Kind) Op {
	if int(k) < len(constructors) && constructors[k] != nil {
		return constructors[k]()
	}
	return nil
}

var constructors = [...]func() Op{
	KindCreate:        func() Op { return new(Create) },
	KindLink:          func() Op { return new(Link) },
	KindUnlink:        func() Op { return new(Unlink) },
	KindRename:        func() Op { return new(Rename) },
	KindSetAttr:       func() Op { return new(SetAttr) },
	KindWrite:         func() Op { return new(Write) },
	KindFallocate:     func() Op { return new(Fallocate) },
	KindSetXattr:      func() Op { return new(SetXattr) },
	KindRemoveXattr:   func() Op { return new(RemoveXattr) },
	KindTmpfile:       func() Op { return new(Tmpfile) },
	KindLock:          func() Op { return new(Lock) },
	KindRefuse:        func() Op { return new(Refuse) },
	KindNop:           func() Op { return new(Nop) },
	KindAhead:         func() Op { return new(Ahead) },
	KindReserve:       func() Op { return new(Reserve) },
	KindMend:          func() Op { return new(Mend) },
	KindOpenSession:   func() Op { return new(OpenSession) },
	KindAttachSession: func() Op { return new(AttachSession) },
	KindEvictSession:  func() Op { return new(EvictSession) },
	KindReap:          func() Op { return new(Reap) },
	KindSetLimits:     func() Op { return new(SetLimits) },
	KindSetFeature:    func() Op { return new(SetFeature) },
	KindOwn:           func() Op { return new(Own) },
	KindSeal:          func() Op { return new(Seal) },
	KindLookup:        func() Op { return new(Lookup) },
	KindGetAttr:       func() Op { return new(GetAttr) },
	KindReadDir:       func() Op { return new(ReadDir) },
	KindRead:          func() Op { return new(Read) },
	KindReadLink:      func() Op { return new(ReadLink) },
	KindGetXattr:      func() Op { return new(GetXattr) },
	KindListXattr:     func() Op { return new(ListXattr) },
	KindStatFS:        func() Op { return new(StatFSQuery) },
	KindSeek:          func() Op { return new(Seek) },
	KindGetLock:       func() Op { return new(GetLock) },
	KindWaitLock:      func() Op { return new(WaitLock) },
	KindOpen:          func() Op { return new(Open) },
	KindReadMany:      func() Op { return new(ReadMany) },
}

func (c *coder) op(op *Op) {
	var k Kind
	if !c.decode {
		k = (*op).Kind()
	}
	c.u8((*uint8)(&k))
	if c.decode {
		if *op = newOp(k); *op == nil {
			c.fail(fmt.Sprintf("operation kind %d", k))
			*op = new(Nop)
			return
		}
	}
	(*op).code(c)
}

func (c *coder) name(v *[]byte) { c.bytes(v, nameWireMax) }

// nameWireMax lets an overlong name reach the state machine, which answers
// ENAMETOOLONG.
const nameWireMax = 4096

func (*Create) Kind() Kind { return KindCreate }
func (o *Create) code(c *coder) {
	c.ino(&o.Parent)
	c.name(&o.Name)
	c.u32(&o.Mode)
	c.u32(&o.UID)
	c.u32(&o.GID)
	c.u32(&o.Rdev)
	c.bytes(&o.Target, 2*nameWireMax)
	c.bool(&o.Excl)
}

func (*Link) Kind() Kind { return KindLink }
func (o *Link) code(c *coder) {
	c.ino(&o.Ino)
	c.ino(&o.Parent)
	c.name(&o.Name)
}

func (*Unlink) Kind() Kind { return KindUnlink }
func (o *Unlink) code(c *coder) {
	c.ino(&o.Parent)
	c.name(&o.Name)
	c.bool(&o.Dir)
}

func (*Rename) Kind() Kind { return KindRename }
func (o *Rename) code(c *coder) {
	c.ino(&o.Parent)
	c.name(&o.Name)
	c.ino(&o.NewParent)
	c.name(&o.NewName)
	c.u32(&o.Flags)
}

func (*SetAttr) Kind() Kind { return KindSetAttr }
func (o *SetAttr) code(c *coder) {
	c.ino(&o.Ino)
	c.u32(&o.Valid)
	c.u32(&o.Mode)
	c.u32(&o.UID)
	c.u32(&o.GID)
	c.u64(&o.Size)
	c.time(&o.Atime)
	c.time(&o.Mtime)
}

func (*Write) Kind() Kind { return KindWrite }
func (o *Write) code(c *coder) {
	c.ino(&o.Ino)
	c.u64(&o.Offset)
	c.bool(&o.Append)
	c.bool(&o.KillPriv)
	c.bytes(&o.Data, DataMax)
}

func (*Fallocate) Kind() Kind { return KindFallocate }
func (o *Fallocate) code(c *coder) {
	c.ino(&o.Ino)
	c.u32(&o.Mode)
	c.u64(&o.Offset)
	c.u64(&o.Length)
	c.bool(&o.KillPriv)
}

func (*SetXattr) Kind() Kind { return KindSetXattr }
func (o *SetXattr) code(c *coder) {
	c.ino(&o.Ino)
	c.name(&o.Name)
	c.bytes(&o.Value, 2*XattrSizeMax)
	c.u32(&o.Flags)
}

func (*RemoveXattr) Kind() Kind { return KindRemoveXattr }
func (o *RemoveXattr) code(c *coder) {
	c.ino(&o.Ino)
	c.name(&o.Name)
}

func (*Tmpfile) Kind() Kind { return KindTmpfile }
func (o *Tmpfile) code(c *coder) {
	c.ino(&o.Parent)
	c.u32(&o.Mode)
	c.u32(&o.UID)
	c.u32(&o.GID)
	c.bool(&o.Excl)
}

func (*Lock) Kind() Kind { return KindLock }
func (o *Lock) code(c *coder) {
	c.ino(&o.Ino)
	c.lock(&o.Lock)
}

func (*Refuse) Kind() Kind      { return KindRefuse }
func (o *Refuse) code(c *coder) { c.errno(&o.Errno) }

func (*Nop) Kind() Kind    { return KindNop }
func (*Nop) code(c *coder) {}

func (*OpenSession) Kind() Kind { return KindOpenSession }
func (o *OpenSession) code(c *coder) {
	c.fixed(&o.Nonce)
	c.bytes(&o.Name, NameMax)
}

func (*AttachSession) Kind() Kind { return KindAttachSession }
func (o *AttachSession) code(c *coder) {
	c.u64(&o.Session)
	c.u64(&o.Epoch)
}

func (*EvictSession) Kind() Kind      { return KindEvictSession }
func (o *EvictSession) code(c *coder) { c.u64(&o.Session) }

func (*Reap) Kind() Kind      { return KindReap }
func (o *Reap) code(c *coder) { c.inos(&o.Inos) }

func (*SetLimits) Kind() Kind { return KindSetLimits }
func (o *SetLimits) code(c *coder) {
	c.u64(&o.Bytes)
	c.u64(&o.Inodes)
}

func (*SetFeature) Kind() Kind      { return KindSetFeature }
func (o *SetFeature) code(c *coder) { c.u64(&o.Level) }

func (*Lookup) Kind() Kind { return KindLookup }
func (o *Lookup) code(c *coder) {
	c.ino(&o.Parent)
	c.name(&o.Name)
}

func (*GetAttr) Kind() Kind      { return KindGetAttr }
func (o *GetAttr) code(c *coder) { c.ino(&o.Ino) }

func (*ReadDir) Kind() Kind { return KindReadDir }
func (o *ReadDir) code(c *coder) {
	c.ino(&o.Ino)
	c.u64(&o.Cookie)
	c.u32(&o.MaxBytes)
	c.bool(&o.Plus)
}

func (*Read) Kind() Kind { return KindRead }
func (o *Read) code(c *coder) {
	c.ino(&o.Ino)
	c.u64(&o.Offset)
	c.u32(&o.Length)
}

func (*ReadLink) Kind() Kind      { return KindReadLink }
func (o *ReadLink) code(c *coder) { c.ino(&o.Ino) }

func (*GetXattr) Kind() Kind { return KindGetXattr }
func (o *GetXattr) code(c *coder) {
	c.ino(&o.Ino)
	c.name(&o.Name)
}

func (*ListXattr) Kind() Kind      { return KindListXattr }
func (o *ListXattr) code(c *coder) { c.ino(&o.Ino) }

func (*StatFSQuery) Kind() Kind    { return KindStatFS }
func (*StatFSQuery) code(c *coder) {}

func (*Seek) Kind() Kind { return KindSeek }
func (o *Seek) code(c *coder) {
	c.ino(&o.Ino)
	c.u64(&o.Offset)
	c.u32(&o.Whence)
}

func (*GetLock) Kind() Kind { return KindGetLock }
func (o *GetLock) code(c *coder) {
	c.ino(&o.Ino)
	c.lock(&o.Lock)
}

func (*WaitLock) Kind() Kind { return KindWaitLock }
func (o *WaitLock) code(c *coder) {
	c.ino(&o.Ino)
	c.lock(&o.Lock)
}

func (*Open) Kind() Kind      { return KindOpen }
func (o *Open) code(c *coder) { c.ino(&o.Ino) }

func (*ReadMany) Kind() Kind      { return KindReadMany }
func (o *ReadMany) code(c *coder) { c.inos(&o.Inos) }
