import type { HookExtension } from 'daybook/extensions'

/**
 * Articles get a `slug` of their title when they are created without one, and keep it: a change of it is refused.
 * Needs a collection `article` with the fields `title` and `slug`, and callers who may write both.
 */
const register: HookExtension = (hooksService, { log }) => {
  hooksService.registerHook('article', 'items.create', ({ data }) => {
    if (data.slug !== undefined || typeof data.title !== 'string') return undefined
    return { data: { ...data, slug: slugOf(data.title) } }
  })
  hooksService.registerHook('article', 'items.update', ({ data, previousDocument }) => {
    const isChanged = data.slug !== undefined && data.slug !== previousDocument.slug
    if (isChanged) throw new Error('The slug of an article is part of its address and stays')
  })
  hooksService.registerHook('article', 'items.create.after', ({ document }) => {
    log.info({ slug: document.slug }, 'a new article')
  })
}

export default register

function slugOf(title: string): string {
  const plain = title.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase()
  return plain.replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '')
}
