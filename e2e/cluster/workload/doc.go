// Command workload is what the test cluster's Pods run. It is a static program, alone in its image.
//
//	workload pause                 waits for SIGTERM (also the sandbox of every Pod)
//	workload append FILE           appends a numbered record and syncs, ten times a second
//	workload hold DIR              keeps descriptors and a lock, and uses them, until SIGTERM
//	workload check FILE            verifies that a file has only whole records without a gap; prints the last
//	workload digest DIR            prints one sum over names and contents below DIR
//	workload fetch URL TOKEN PEM   asks by TLS, with a token, of who has a certificate that PEM signs
//	workload cat|ls|stat PATH...   write FILE TEXT   mounts   lock FILE
package main
