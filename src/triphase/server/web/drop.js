// Photos from files, folders, zips and the clipboard: always {file, className or null}.

const PICTURE = /\.(jpe?g|png|gif|bmp|webp|tiff?|ppm|avif|heic)$/i;
const ZIP = /\.zip$/i;

export const isZip = (file) => ZIP.test(file.name);
export const isPicture = (file) => PICTURE.test(file.name) || file.type.startsWith("image/");

// A dropped folder is one class if it contains photos, else a folder of class folders. Loose photos have no class.
function withClasses(files) {
  const roots = new Set(files.filter(({ path }) => path.split("/").length === 2).map(({ path }) => path.split("/")[0]));
  return files.map(({ file, path }) => {
    const [root, folder] = path.split("/");
    if (root === path) return { file, className: null };
    return { file, className: roots.has(root) || !folder ? root : folder };
  });
}

// A class folder and the folders in it, if the classes are probably one level deeper: each class has its photos in several folders.
function nestedClasses(photos) {
  const inside = new Map();
  for (const { path } of photos) {
    const [root, folder, inner, file] = path.split("/");
    if (file === undefined) return null; // a photo that lies in its class folder, or in none
    const place = `${root}/${folder}`;
    inside.set(place, (inside.get(place) ?? new Set()).add(inner));
  }
  const [first] = inside;
  const several = first && [...inside.values()].every((folders) => folders.size > 1);
  return several ? { folder: first[0].split("/")[1], inside: [...first[1]] } : null;
}

export function fromInput(files) {
  return usable([...files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
}

export async function fromTransfer(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return fromInput(transfer.files);
  const found = await Promise.all(entries.map((entry) => walk(entry, entry.name)));
  return usable(found.flat());
}

function usable(found) {
  const visible = found.filter(({ file }) => !file.name.startsWith(".")).sort((a, b) => a.path.localeCompare(b.path, "en", { numeric: true }));
  const photos = visible.filter(({ file }) => isPicture(file));
  return {
    photos: withClasses(photos),
    nested: nestedClasses(photos),
    zips: visible.filter(({ file }) => isZip(file)).map(({ file }) => file),
    others: visible.filter(({ file }) => !isPicture(file) && !isZip(file)).map(({ file }) => file.name),
  };
}

async function walk(entry, path) {
  if (entry.isFile) return [{ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path }];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return found;
    for (const inner of entries) found.push(...await walk(inner, `${path}/${inner.name}`));
  }
}

// The whole window takes drops and pastes; `cover` shows that it does.
export function listen(cover, received, explained) {
  let depth = 0;
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (change) => { depth = Math.max(0, depth + change); cover.hidden = depth === 0; explained(); };
  window.addEventListener("dragenter", (event) => { if (hasFiles(event)) { event.preventDefault(); show(1); } });
  window.addEventListener("dragleave", (event) => { if (hasFiles(event)) show(-1); });
  window.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  window.addEventListener("drop", async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    cover.hidden = true;
    received(await fromTransfer(event.dataTransfer));
  });
  window.addEventListener("paste", (event) => {
    const found = fromInput(event.clipboardData?.files ?? []);
    if (found.photos.length || found.zips.length) received(found);
  });
}
