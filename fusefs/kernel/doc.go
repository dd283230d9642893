// Package kernel carries FUSE requests to a [fsop.Caller] and the answers back.
//
// # What it owns
//
// Mounting and unmounting, the device, the translation of every request and
// errno, which requests may block whom (the baton), interruption, who may hold
// locks through which handle, and a mount's memory that outlives its serving
// process: the [Ledger], and the keeper that holds it ([RunKeeper],
// [DialKeeper]) and writes the notifications that wait. Also fusermount3
// ([Fusermount]).
//
// # What it does not own
//
// What an operation does, leases, retries and numbers in the session's stream:
// that is behind the Caller. Kernel sets Op, Tag, Sub and Open of a request and
// nothing else. What a session may offer beyond Call is in caller.go.
//
// bazil.org/fuse reads and parses requests (its raw loop); bazil.go is the only
// file that knows its insides. INIT, attributes and every answer are encoded
// here.
//
// # Invariants
//
//   - A request's Tag is the kernel's unique number without the mark of a
//     second coming, and Sub counts the mutations that it expands into. So the
//     same request gets the same identities from every serving process.
//   - A node id is an inode number and a handle is the Tag of the request that
//     opened it. Neither carries state.
//   - Permissions, umask and the sticky bit are the kernel's business
//     (default_permissions).
//   - [Finisher] is told of a mutation only after the kernel has its answer.
//   - Whoever may block has handed the baton on. Waiting locks use no worker.
//   - The kernel keeps names and attributes for 40 ms at most, and only what the
//     session's leases cover; a session gives no lease up before
//     [Mount.Linger] has passed (memo.go).
//   - Only lock waits are interrupted by signals; a killed process is let go.
//   - Two processes never read from one device: before the keeper hands it on,
//     the one before has been killed and is gone.
//   - Where a keeper holds the mount, the serving process does not have the kernel
//     forget names or pages: that waits for answers which only it gives, and nothing
//     can end the wait.
//
// # What the kernel does not let us do
//
// flock(2) of a directory stays on one node: FUSE never asks. After an append
// behind another node's, the file position is counted from the size that the
// kernel knew. A process that serves a mount must not use files on it: a page
// fault or an epoll_ctl of Go's runtime that waits for the mount stops the
// collector, and with it the answer. A keeper must not have files open on its
// mounts: starting a process closes their copies, which waits for the process
// that is to be started.
//
// # Shared memory of a mount, version 3
//
// A sealed memfd, mapped by the serving process, its descriptor kept by the
// keeper. Integers have the machine's byte order. Offsets in bytes:
//
//	0        magic "TAKMOUNT"
//	8   u32  version: 2 as long as no handle has had bit 61, else 3
//	12  u32  1 when INIT has been answered
//	16  u32  valid identity slot: 0 none, 1, 2
//	24  u32  length of the INIT request; 28 of the answer
//	32  u32  handle slots that were ever used; 36 holder slots
//	64       INIT request (256 bytes), INIT answer (256 bytes)
//	4096     identity slots, 8192 bytes each:
//	         session u64, epoch u64, last seq u64, nonce 16 bytes,
//	         at 40 u32 length of the hint, at 64 the hint
//	20480    1024 mutations in flight, 32 bytes each:
//	         state u32 (1: valid), sub u32, tag u64, seq u64, session u64
//	53248    2^18 open handles, 16 bytes each: handle u64 (0: free), inode u64;
//	         bit 62 of a handle: the kernel refers to an inode without a name;
//	         of an inode, bit 63: work on it was lost, and the handle's user is to be
//	         told (61: for want of space), 62: a lock on it was lost
//	4247552  2^16 lock holders, 32 bytes each:
//	         kind u32 (0: free), u32 unused, inode u64, owner u64, handle u64
//	6344704  ring of operations that were answered and not logged: u64, its
//	         upper half where the first record is, its lower where the next
//	         one goes; equal: none
//	6344768  2^24 bytes of records, each at a multiple of 8: length u32 (all
//	         ones: go on at the start), u32 unused, seq u64, the operation
//
// A record is filled first and published last, by one atomic store (the slot
// number, the state, the handle, the kind). In flight entries of another
// session than the valid identity's are void.
//
// # Messages between keeper and serving process, version 1
//
// See message.go.
//
// # Crashes
//
// A serving process may be killed at any instruction. The keeper still holds
// device and ledger, so the connection stays; the next process asks the kernel
// to send again what was read and not answered (Linux 6.9), finds the numbers
// that these requests had, and goes on. Without that ability of the kernel the
// keeper is given nothing: the device closes with the process, and the mount
// answers ENOTCONN. When the keeper dies, its serving process has to end
// ([Link.Wait]), and mounts end with it. Nothing here is on a disk.
//
// The serving process is the keeper's child, or that of a [Supervisor] in the same
// process table, which may die too, with all that it has started and at any
// instruction: the next one's child is given the same.
//
// A thread that has the kernel forget a name waits for the folder's lock, which is held
// as long as a look-up or a change there has no answer, and one that has it forget pages
// for theirs, as long as they are being read; a killed process with such a thread is not
// gone, and its devices stay open. That is why the keeper writes it (notifier.go), and
// the threads are the keeper's:
//
//   - The serving process is killed: the next one gives the answer.
//   - The keeper hands over: its successor's serving process gives the answer. Until then
//     the old keeper, when it is ended, is not gone, and holds a copy of that device;
//     sockets and lock it has closed before.
//   - The keeper is told to end: the mounts end first, which frees the threads. Where
//     nobody serves, the keeper ends the mounts that have such a thread by force, since
//     closing their devices would not.
//   - The keeper is killed: the serving process does not learn of it before it has
//     given the answer. Then the keeper is gone, and mounts end as said above.
//   - Both are killed: nobody is left to give the answer, and the mounts hang until
//     somebody unmounts by force (umount -f) or aborts them in /sys/fs/fuse/connections.
//     The next keeper waits for that: the old one still has socket and lock.
//
// A mount that no keeper holds, on a kernel before 6.9, would hang as in the last case
// whenever its process is killed with such a thread. There, and with a keeper of a
// version that does not notify, no names are dropped: now and then a folder that another
// mount has moved is ESTALE once, and waits for nobody. Pages must be dropped or somebody
// would read what is old, so there the process waits itself. That matters when it is
// killed just while a page has no answer and a lock or another mount's change has it
// dropped. A process that has no keeper at all, in which all is tried at once, takes that
// risk for names too.
//
// A keeper can be replaced: the next one asks for everything ([Succeed]), the
// serving process ends, devices and ledgers change hands, and the successor
// confirms. Meanwhile nobody may serve. If it vanishes before, the old keeper goes on;
// if it dies after, so do the mounts. Mounts of kernels before 6.9 are in no keeper's hands, and end.
package kernel
