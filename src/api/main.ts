import { keepCompiled } from '../compile-cache.ts'

keepCompiled()
await import('./web.ts')
