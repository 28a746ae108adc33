import type { Case } from './cases.ts'

const boundary = 'a-boundary-of-the-bench'
const megabyte = 'A line of text, as long as it takes. '.repeat(29_000).slice(0, 1024 * 1024)
const form = [
  `--${boundary}`,
  'content-disposition: form-data; name="file"; filename="bench.txt"',
  'content-type: text/plain',
  '',
  megabyte,
  `--${boundary}--`,
  '',
].join('\r\n')

/** Uploads. The ceiling writes the file, syncs it and inserts a row, as every service must that promises to have it. */
export const fileCases: readonly Case[] = [
  {
    id: 'W15',
    title: 'upload of 1 MB',
    roles: ['admin'],
    connections: 8,
    status: 200,
    request: () => ({
      method: 'POST',
      path: '/files',
      body: form,
      headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
    }),
    accepts: (body) => /^\{"data":"[0-9a-f-]{36}"\}$/.test(body),
    comparable: () => 'an id',
  },
]
