package fsop

import "syscall"

// Errno is a POSIX outcome with Linux numbers; 0 is success. It is part of
// replicated results, so only deterministic outcomes are expressed by it.
type Errno uint16

// OK is success.
const OK Errno = 0

// Error implements error for use in messages.
func (e Errno) Error() string { return syscall.Errno(e).Error() }

// The outcomes that the state machine produces.
const (
	EPERM        = Errno(syscall.EPERM)
	ENOENT       = Errno(syscall.ENOENT)
	EINTR        = Errno(syscall.EINTR)
	EIO          = Errno(syscall.EIO)
	ENXIO        = Errno(syscall.ENXIO)
	EAGAIN       = Errno(syscall.EAGAIN)
	EBADF        = Errno(syscall.EBADF)
	EACCES       = Errno(syscall.EACCES)
	EBUSY        = Errno(syscall.EBUSY)
	EEXIST       = Errno(syscall.EEXIST)
	EXDEV        = Errno(syscall.EXDEV)
	ENODEV       = Errno(syscall.ENODEV)
	ENOTDIR      = Errno(syscall.ENOTDIR)
	EISDIR       = Errno(syscall.EISDIR)
	EINVAL       = Errno(syscall.EINVAL)
	EFBIG        = Errno(syscall.EFBIG)
	ENOSPC       = Errno(syscall.ENOSPC)
	EROFS        = Errno(syscall.EROFS)
	EMLINK       = Errno(syscall.EMLINK)
	ERANGE       = Errno(syscall.ERANGE)
	EDEADLK      = Errno(syscall.EDEADLK)
	ENAMETOOLONG = Errno(syscall.ENAMETOOLONG)
	ENOLCK       = Errno(syscall.ENOLCK)
	ENOSYS       = Errno(syscall.ENOSYS)
	ENOTEMPTY    = Errno(syscall.ENOTEMPTY)
	ELOOP        = Errno(syscall.ELOOP)
	ENODATA      = Errno(syscall.ENODATA)
	EOVERFLOW    = Errno(syscall.EOVERFLOW)
	EOPNOTSUPP   = Errno(syscall.EOPNOTSUPP)
	ESTALE       = Errno(syscall.ESTALE)
	E2BIG        = Errno(syscall.E2BIG)

	// Again says that an operation used up its number and changed nothing, since
	// it stood in the way of others: it is to be repeated under a new number. It
	// never reaches an application (ERESTARTSYS).
	Again = Errno(512)
)
