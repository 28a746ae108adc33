import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { freePort, probePort } from '../db/embedded/free-port.ts'

/** A fault of the surroundings, told in one sentence that names the variable; no stack is shown for it. */
export class StartError extends Error {
  override readonly name = 'StartError'
}

/**
 * The port of PORT, or a free one for 0. Better to know now than after the database has been made.
 *
 * @throws StartError when it is taken or can't be had
 */
export async function usablePort({ host, port }: Config['server']): Promise<number> {
  try {
    if (port === 0) return await freePort(host)
    await probePort(port, host)
    return port
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    throw new StartError(problems[code]?.(port, host) ?? `HOST, PORT: ${message}`)
  }
}

const problems: Record<string, (port: number, host: string) => string> = {
  EADDRINUSE: (port, host) =>
    `PORT: ${port} on ${host} is taken by another process. Stop that one or set PORT to another number.`,
  EACCES: (port) => `PORT: this user may not listen on ${port}. Set PORT to a number above 1023.`,
  EADDRNOTAVAIL: (_port, host) => `HOST: ${host} is no address of this machine.`,
  ENOTFOUND: (_port, host) => `HOST: the name ${host} is not known.`,
}

/** SECRET_KEY, or outside production a key that is made once and kept, so that sessions survive a restart. */
export async function secretKey({ auth, database }: Config): Promise<string> {
  if (auth.secretKey !== '') return auth.secretKey
  const file = join(database.dataDir, 'secret-key')
  await mkdir(database.dataDir, { recursive: true })
  try {
    await writeFile(file, `${randomBytes(48).toString('base64url')}\n`, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return (await readFile(file, 'utf8')).trim()
}
