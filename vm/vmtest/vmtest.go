// Package vmtest has fakes for tests of what runs virtual machines: a QMP
// server, a QEMU, and a whole Machine.
package vmtest
