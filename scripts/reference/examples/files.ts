import { type Example, plain, sent } from './example.ts'

/** Files and their content. */
export const files: readonly Example[] = [
  {
    route: 'POST /files',
    form: { title: 'Notes', folder: 'letters', file: ['notes.txt', 'of engines'] },
    keep: { file: 'data' },
  },
  plain('GET /files', '/files?filter={"folder":"letters"}&fields=id,title,size'),
  plain('GET /files/{id}', '/files/{{file}}?fields=title,size,type'),
  sent('PATCH /files/{id}', { title: 'Notes on engines' }, { path: '/files/{{file}}' }),
  plain('GET /assets/{id}', '/assets/{{file}}'),
  sent('POST /files/{id}/signed-url', { expiresIn: 3600 }, { path: '/files/{{file}}/signed-url' }),
  sent('POST /files/signed-urls', { expiresIn: 3600, files: ['{{file}}'] }),
  plain('GET /files/usage'),
  plain('POST /files/migrate-storage-structure', '/files/migrate-storage-structure?dryRun=true'),
  {
    route: 'POST /files',
    form: { file: ['makers.csv', 'name\r\nHerman Hollerith\r\n'] },
    keep: { table: 'data' },
  },
  sent('POST /files/{id}/import', { collection: 'maker' }, { path: '/files/{{table}}/import' }),
  plain('OPTIONS /files/tus', undefined, { status: 204 }),
  plain('POST /files/tus', undefined, {
    status: 201,
    headers: { 'tus-resumable': '1.0.0', 'upload-length': '10', 'upload-metadata': 'filename bm90ZXMudHh0' },
    keep: { upload: 'header:location' },
  }),
  plain('OPTIONS /files/tus/{id}', '{{upload}}', { status: 204 }),
  {
    route: 'PATCH /files/tus/{id}',
    path: '{{upload}}',
    text: 'of en',
    status: 204,
    headers: { 'tus-resumable': '1.0.0', 'upload-offset': '0', 'content-type': 'application/offset+octet-stream' },
  },
  plain('DELETE /files/tus/{id}', '{{upload}}', { status: 204, headers: { 'tus-resumable': '1.0.0' } }),
  plain('DELETE /files/{id}', '/files/{{table}}'),
]
