import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { run } from '../../src/cli/init.ts'

function place(): string {
  const path = mkdtempSync(join(tmpdir(), 'daybook-init-'))
  onTestFinished(() => rmSync(path, { recursive: true }))
  vi.spyOn(process.stdout, 'write').mockReturnValue(true)
  onTestFinished(() => void vi.restoreAllMocks())
  return path
}

it.each([
  ['my app (2)', 'my-app-2'],
  ['.My__App.-x_', 'my-app-x'],
  ['shop_v1.2', 'shop_v1.2'],
])('names the package and the image of %s alike', async (directory, name) => {
  const target = join(place(), directory)
  expect(await run([target])).toBe(0)
  expect(JSON.parse(readFileSync(join(target, 'package.json'), 'utf8')).name).toBe(name)
  expect(readFileSync(join(target, 'compose.yaml'), 'utf8')).toContain(`:-localhost/${name}}\n`)
})

it.each(['my-app-', 'my.-app', 'My', `${'a'.repeat(101)}`])('refuses the name %s, which no image has', async (name) => {
  await expect(run([join(place(), 'x'), '--name', name])).rejects.toThrow('is no name of a package and its image')
})
