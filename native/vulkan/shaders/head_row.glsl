// A head's numbers for one token, `dim` from row[at] on, by 64 threads of a workgroup, `lane` among
// them: norm and rotation, with sums in the same order wherever they are done. `row`, `squares` and
// `norms` come before it. All threads of a workgroup call it, with `is_own` false where one has no head.

// `sums` is where its 64 numbers of `squares` begin.
void norm_row(bool is_own, uint at, uint sums, uint lane, uint dim, uint weights, float eps) {
  float own = 0.0;
  if (is_own) {
    for (uint i = lane; i < dim; i += 64) own = fma(row[at + i], row[at + i], own);
    squares[sums + lane] = own;
  }
  for (uint half_size = 32; half_size > 0; half_size /= 2) {
    barrier();
    if (is_own && lane < half_size) squares[sums + lane] += squares[sums + lane + half_size];
  }
  barrier();
  if (is_own) {
    const float inverse = 1.0 / sqrt(squares[sums] / float(dim) + eps);
    for (uint i = lane; i < dim; i += 64) {
      precise float number = row[at + i] * inverse * norms[weights + i];
      row[at + i] = number;
    }
  }
  barrier();
}

// Turns the numbers at `at` and `half_size` behind it.
void rotate(uint at, uint half_size, float cosine, float sine) {
  const float left = row[at], right = row[at + half_size];
  precise float first = left * cosine - right * sine;
  precise float second = right * cosine + left * sine;
  row[at] = first;
  row[at + half_size] = second;
}
