package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
	"tak-os.org/tak-replicated/raftlog/transport"
)

// Pages travel between replicas over streams of their own, beside checkpoints.
// The opener sends, integers little endian:
//
//	magic  8 bytes "takmend" and the version, 1
//	inode  u64
//	page   u64, the first one
//	count  u32, of pages, at most mendPagesMost
//
// and gets for each page a u32: 0 when it is not to be had here, or the size of a
// page, then the index of the last entry that changed the file's contents, u64,
// and the page's bytes. Only pages that fit their checksum are sent. The
// receiver checks them against its own. A stream that ends early is no answer: the
// member can't tell yet.
const (
	mendMagic     = "takmend\x01"
	mendHead      = len(mendMagic) + 8 + 8 + 4
	mendPagesMost = 256
	// How long one other replica is asked: by the scrub, and while an entry waits.
	mendTimeout  = 5 * time.Second
	fetchTimeout = 2 * time.Second
	// How often, and how long in all, those who did not answer are asked again while
	// an entry waits. Then the replica stops, and its next start tries again.
	fetchRetry    = 500 * time.Millisecond
	fetchPatience = 30 * time.Second
)

type mendRequest struct {
	ino   fsop.Ino
	page  uint64
	count uint32
}

func (r mendRequest) encode() []byte {
	b := append([]byte(nil), mendMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ino))
	b = binary.LittleEndian.AppendUint64(b, r.page)
	return binary.LittleEndian.AppendUint32(b, r.count)
}

func decodeMendRequest(b []byte) (r mendRequest, err error) {
	if len(b) != mendHead || !bytes.HasPrefix(b, []byte(mendMagic)) {
		return r, errors.New("not a request for pages")
	}
	b = b[len(mendMagic):]
	r.ino = fsop.Ino(binary.LittleEndian.Uint64(b))
	r.page = binary.LittleEndian.Uint64(b[8:])
	r.count = binary.LittleEndian.Uint32(b[16:])
	if r.count == 0 || r.count > mendPagesMost || r.page > 1<<51 {
		return r, errors.New("request for too many pages")
	}
	return r, nil
}

// peers is the replica as the other replicas' streams find it: those for pages
// are served here, the rest is the log's.
type peers struct {
	*raftlog.Group
	r *replica
}

var _ transport.Handler = peers{}

// AcceptStream implements transport.Handler.
func (p peers) AcceptStream(ctx context.Context, from uint64, stream io.ReadWriter) error {
	head := make([]byte, len(mendMagic))
	if _, err := io.ReadFull(stream, head); err != nil {
		return err
	}
	if string(head) == mendMagic {
		return p.r.servePages(stream)
	}
	closer, _ := stream.(io.Closer)
	return p.Group.AcceptStream(ctx, from, resumed{io.MultiReader(bytes.NewReader(head), stream), stream, closer})
}

// resumed is a stream of which the beginning has been read.
type resumed struct {
	io.Reader
	io.Writer
	io.Closer
}

// servePages answers one request for pages.
func (r *replica) servePages(stream io.ReadWriter) error {
	b := make([]byte, mendHead)
	copy(b, mendMagic)
	if _, err := io.ReadFull(stream, b[len(mendMagic):]); err != nil {
		return err
	}
	req, err := decodeMendRequest(b)
	if err != nil {
		return err
	}
	for page := req.page; page < req.page+uint64(req.count); page++ {
		// A page that is not good here is not to be had: nobody else is asked.
		data, changed, err := r.tree.ReadPage(req.ino, page)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read page %d of inode %d: %w", page, req.ino, err)
		}
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
		if len(data) > 0 {
			b = append(binary.LittleEndian.AppendUint64(b, changed), data...)
		}
		if _, err := stream.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// sentPage is a page that a member sent; without data it has none.
type sentPage struct {
	data    []byte
	changed uint64
}

// askPages gets pages from one member; those it does not have are nil.
func (r *replica) askPages(ctx context.Context, member uint64, req mendRequest) ([]sentPage, error) {
	stream, err := r.transport.OpenStream(ctx, member)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if _, err := stream.Write(req.encode()); err != nil {
		return nil, err
	}
	return readPages(stream, int(req.count))
}

func readPages(stream io.Reader, count int) ([]sentPage, error) {
	pages := make([]sentPage, count)
	for i := range pages {
		var head [4 + 8]byte
		if _, err := io.ReadFull(stream, head[:4]); err != nil {
			return nil, fmt.Errorf("read pages: %w", err)
		}
		switch binary.LittleEndian.Uint32(head[:]) {
		case 0:
			continue
		case tree.PageBytes:
		default:
			return nil, errors.New("answer to a request for pages is malformed")
		}
		pages[i].data = make([]byte, tree.PageBytes)
		_, err := io.ReadFull(stream, head[4:])
		if err == nil {
			_, err = io.ReadFull(stream, pages[i].data)
		}
		if err != nil {
			return nil, fmt.Errorf("read pages: %w", err)
		}
		pages[i].changed = binary.LittleEndian.Uint64(head[4:])
	}
	return pages, nil
}

// others are the other members of the volume.
func (r *replica) others() (ids []uint64) {
	for _, m := range r.group.Members() {
		if m.ID != r.cfg.Member {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// repair gets pages from other replicas for the tree.
type repair struct{ r *replica }

var _ tree.Repair = repair{}

// Fetch implements tree.Repair.
func (p repair) Fetch(ino fsop.Ino, page uint64, fits func([]byte, uint64) bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchPatience)
	defer cancel()
	p.r.scrub.found(1)
	data, err := fetch(ctx, p.r.leaving, p.r.group.Members, func(ctx context.Context, member uint64) (sentPage, error) {
		pages, err := p.r.askPages(ctx, member, mendRequest{ino, page, 1})
		if err != nil {
			p.r.log.Warn("page not had from a member", zap.Uint64("member", member), zap.Error(err))
			return sentPage{}, err
		}
		return pages[0], nil
	}, p.r.cfg.Member, fits)
	if err == nil {
		p.r.scrub.mended(1)
	}
	return data, err
}

// asking asks one member for a page.
type asking func(ctx context.Context, member uint64) (sentPage, error)

// fetch returns the first page that fits of those that the members but self have. While
// none has it and some did not answer they are asked again, until ctx ends or the
// replica is told to leave.
func fetch(ctx context.Context, leaving <-chan struct{}, members func() []raftlog.Member, ask asking, self uint64, fits func([]byte, uint64) bool) ([]byte, error) {
	for {
		all := members()
		if len(all) == 0 {
			return nil, errors.Join(tree.ErrUnanswered, raftlog.ErrStopped)
		}
		data, silent := fetchOnce(ctx, all, ask, self, fits)
		switch {
		case data != nil:
			return data, nil
		case silent == nil:
			return nil, errors.New("no other replica has it as it must be")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(tree.ErrUnanswered, silent)
		case <-leaving:
			return nil, errors.Join(tree.ErrUnanswered, silent)
		case <-time.After(fetchRetry):
		}
	}
}

// fetchOnce asks all members at the same time. silent says why one did not answer, nil
// if all have.
func fetchOnce(ctx context.Context, members []raftlog.Member, ask asking, self uint64, fits func([]byte, uint64) bool) (data []byte, silent error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	type answer struct {
		page sentPage
		err  error
	}
	answers := make(chan answer, len(members))
	asked := 0
	for _, m := range members {
		if m.ID == self {
			continue
		}
		asked++
		go func() {
			page, err := ask(ctx, m.ID)
			answers <- answer{page, err}
		}()
	}
	for range asked {
		select {
		case a := <-answers:
			if a.err == nil && fits(a.page.data, a.page.changed) {
				return a.page.data, nil
			}
			silent = errors.Join(silent, a.err)
		case <-ctx.Done():
			return nil, errors.Join(silent, ctx.Err())
		}
	}
	return nil, silent
}

// Damaged implements tree.Repair: it mends everything around the page.
func (p repair) Damaged(ino fsop.Ino, page uint64) bool {
	bad, err := p.r.tree.BadPages(ino, page, mendPagesMost)
	if err != nil || len(p.r.others()) == 0 {
		p.r.scrub.found(len(bad))
		return false
	}
	return p.r.mend(context.Background(), bad) > 0
}

// mend mends pages, and returns how many it could. What can't be mended now is
// found again in the next round.
func (r *replica) mend(ctx context.Context, bad []tree.BadPage) (mended int) {
	if len(bad) == 0 {
		return 0
	}
	r.scrub.found(len(bad))
	for _, run := range runsOf(bad) {
		for _, id := range r.others() {
			n := r.mendFrom(ctx, id, run)
			mended += n
			if n == int(run.count) {
				break
			}
		}
	}
	r.scrub.mended(mended)
	r.log.Warn("damaged contents", zap.Int("pages", len(bad)), zap.Int("mended", mended), zap.Uint64("inode", uint64(bad[0].Ino)))
	return mended
}

// runsOf joins pages that follow each other.
func runsOf(bad []tree.BadPage) (runs []mendRequest) {
	for _, b := range bad {
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if last.ino == b.Ino && last.page+uint64(last.count) == b.Page && last.count < mendPagesMost {
				last.count++
				continue
			}
		}
		runs = append(runs, mendRequest{b.Ino, b.Page, 1})
	}
	return runs
}

func (r *replica) mendFrom(ctx context.Context, member uint64, run mendRequest) (mended int) {
	ctx, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	pages, err := r.askPages(ctx, member, run)
	if err != nil {
		r.log.Warn("pages not had from a member", zap.Uint64("member", member), zap.Error(err))
		return 0
	}
	for i := range pages {
		done, err := r.tree.Mend(run.ino, run.page+uint64(i), pages[i].data, pages[i].changed)
		if err != nil {
			r.log.Error("mend", zap.Error(err))
			return mended
		}
		if done {
			mended++
		}
	}
	return mended
}
