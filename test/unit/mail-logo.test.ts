import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { ConfigError } from '../../src/config/config.ts'
import { readLogo } from '../../src/features/messaging/templates/templates.ts'

const defaultLogo = readFileSync(new URL('../../src/features/messaging/templates/logo.png', import.meta.url))
const own = Buffer.concat([defaultLogo, Buffer.from('own')])
let dir: string
const file = () => join(dir, 'templates', 'logo', 'logo.png')

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'logo-'))
  mkdirSync(join(dir, 'templates', 'logo'), { recursive: true })
})
afterEach(() => rmSync(dir, { recursive: true }))

it('is the one of the extensions, else the default', () => {
  expect(readLogo(dir)).toEqual(defaultLogo)
  expect(readLogo(join(dir, 'nowhere'))).toEqual(defaultLogo)
  writeFileSync(file(), own)
  expect(readLogo(dir)).toEqual(own)
})

it('is never what a link leads to', () => {
  writeFileSync(join(dir, 'secret.png'), own)
  symlinkSync(join(dir, 'secret.png'), file())
  expect(() => readLogo(dir)).toThrow(ConfigError)
  rmSync(file())
  rmSync(join(dir, 'templates', 'logo'), { recursive: true })
  mkdirSync(join(dir, 'elsewhere'))
  writeFileSync(join(dir, 'elsewhere', 'logo.png'), own)
  symlinkSync(join(dir, 'elsewhere'), join(dir, 'templates', 'logo'))
  expect(() => readLogo(dir)).toThrow(ConfigError)
})

it.each([Buffer.from('SECRET_KEY=1'), Buffer.alloc(0), Buffer.concat([defaultLogo, Buffer.alloc(256 * 1024)])])(
  'is a PNG of bounded size',
  (content) => {
    writeFileSync(file(), content)
    expect(() => readLogo(dir)).toThrow(ConfigError)
  },
)
