/** The numbers of `charts/levels.py`, row after row; NaN where nothing is shown. */
function decoded({ cells, low, decimals }) {
  const bytes = Uint8Array.from(atob(cells), (sign) => sign.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, cell) => {
    const level = view.getUint16(2 * cell, true);
    return level === 65535 ? NaN : low + level / 10 ** decimals;
  });
}
