import pino from 'pino'
import { type Config, parseConfig } from '../../src/config/config.ts'
import { runSetup } from '../../src/setup.ts'

/** The default administrator of every prepared database. */
export const administrator = { email: 'admin@example.com', password: 'correct horse battery staple' }

/** The variables with which a process of ours runs on a test database; spread more over them. */
export function testEnv(url: string): Record<string, string> {
  return {
    NODE_ENV: 'test',
    DATABASE_URL: url,
    SECRET_KEY: 'a key for tests only, of no worth to anybody',
    ADMIN_EMAIL: administrator.email,
    ADMIN_PASSWORD: administrator.password,
  }
}

/** The configuration of such a process. */
export function testConfig(url: string, more: Readonly<Record<string, string>> = {}): Config {
  return parseConfig({ ...testEnv(url), ...more }, { requireDatabase: true })
}

/** Makes an empty database one that the program can run on, with the program's own setup step. */
export async function prepareDatabase(url: string): Promise<void> {
  await runSetup(testConfig(url), pino({ level: 'warn' }))
}
