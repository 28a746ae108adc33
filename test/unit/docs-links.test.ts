import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { expect, it } from 'vitest'

const pages = globSync(['*.md', 'docs/**/*.md', 'extensions/**/*.md', 'examples/**/*.md'])

/** The anchors of a page, as GitHub derives them from its headings. */
function anchorsOf(page: string): Set<string> {
  const text = readFileSync(page, 'utf8').replaceAll(/```.*?```/gs, '')
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-')
  return new Set([...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => slug(heading!)))
}

it.each(pages)('%s links to pages and headings that exist', (page) => {
  const text = readFileSync(page, 'utf8').replaceAll(/```.*?```|`[^`\n]*`/gs, '')
  const broken = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target!)
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => {
      const [path, anchor] = target.split('#') as [string, string?]
      const file = path === '' ? page : join(dirname(page), path)
      return !existsSync(file) || (anchor !== undefined && !anchorsOf(relative('.', file)).has(anchor))
    })
  expect(broken).toEqual([])
})

it('the excerpts of the tutorial are parts of the files that it names', () => {
  const text = readFileSync('docs/tutorial.md', 'utf8')
  const excerpts = [...text.matchAll(/^```\w+ part=(\S+)\n(.*?)^```$/gms)]
  expect(excerpts.length).toBeGreaterThan(10)
  const strange = excerpts.filter(([, file, part]) => !readFileSync(file!, 'utf8').includes(part!.trim()))
  expect(strange.map(([whole]) => whole)).toEqual([])
})
