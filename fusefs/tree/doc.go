// Package tree is the state machine of the replicated filesystem: files and
// metadata as a function of the log.
//
// # Exported interface
//
//	func Open(cfg Config) (*Tree, error)
//	func (t *Tree) Close() error
//	func (t *Tree) Apply(index, term uint64, e *fsop.Entry) ([]Result, error)
//	func (t *Tree) Read(ctx context.Context, op fsop.Op) (*fsop.Reply, error)
//	func (t *Tree) Applied() (index, term uint64)
//	func (t *Tree) SetFence(index uint64)
//	func (t *Tree) Ready() bool
//	func (t *Tree) Sessions() []SessionInfo
//	func (t *Tree) Session(id uint64) (SessionInfo, bool)
//	func (t *Tree) SessionByNonce(nonce [16]byte) (SessionInfo, bool)
//	func (t *Tree) Replay(session, seq uint64) (*fsop.Reply, bool)
//	func (t *Tree) Conflict(ino fsop.Ino, session uint64, l fsop.LockRange) (fsop.LockRange, bool)
//	func (t *Tree) Orphans(max int) []fsop.Ino
//	func (t *Tree) LastStamp() fsop.Time
//	func (t *Tree) Limits() (bytes, inodes uint64)
//	func (t *Tree) Feature() uint64
//	func (t *Tree) Space() (SpaceInfo, error)
//	func (t *Tree) Growth(op fsop.Op) uint64
//	func (t *Tree) Digest() ([32]byte, error)
//	func (t *Tree) Check() error
//	func (t *Tree) BeginCheckpoint(extra []byte) (finish func(context.Context) (oldest uint64, err error), err error)
//	func (t *Tree) Checkpoint() (*CheckpointReader, error)
//	func (t *Tree) Receive(meta Meta) (*CheckpointWriter, error)
//	func (t *Tree) Install(w *CheckpointWriter, fence uint64) error
//	(*CheckpointReader) Meta() Meta; Next() (Part, error); Open(name string) (io.ReaderAt, io.Closer, error); AppliedIndex() uint64; Close() error
//	(*CheckpointWriter) Have(p Part) (uint64, error); Write(p Part, offset uint64, data []byte, readAt uint64) error; Finish() error; Abort() error
//	func VerifyCheckpoint(fs disk.FS, dir string) (*Verified, error)
//	func Export(fs disk.FS, dir, dest string) (*Exported, error)
//	func NewShared(cacheBytes int64) *Shared
//	package treetest: func NewCaller(t *tree.Tree) fsop.Caller
package tree
