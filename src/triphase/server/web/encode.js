// A canvas as a file. Chromium's canvas.toBlob waits for an idle moment, up to a second; this does not.

export function encode(canvas, type, quality) {
  const coded = atob(canvas.toDataURL(type, quality).split(",")[1]);
  return new Blob([Uint8Array.from(coded, (sign) => sign.charCodeAt(0))], { type });
}
