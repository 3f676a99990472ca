// Waits until a subgroup's threads see what they wrote to shared memory, and for nothing else:
// subgroupBarrier() would wait for what is being fetched from buffers, too.
#define SUBGROUP_BARRIER \
  controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
