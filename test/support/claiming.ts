import { createInterface } from 'node:readline'
import { claimDirectory } from '../../src/db/embedded/embedded.ts'

/** For each directory that it reads: claims it when the moment after it has come, and says whether it has got it. */
for await (const line of createInterface({ input: process.stdin })) {
  const [directory = '', at = ''] = line.split(' ')
  while (Date.now() < Number(at));
  const outcome = await claimDirectory(directory, { log: { info: () => undefined, warn: () => undefined } }).then(
    () => 'won',
    (error: Error) => (/is in use by process/.test(error.message) ? 'refused' : String(error.stack)),
  )
  process.stdout.write(`${outcome}\n`)
}
