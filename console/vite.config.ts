import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

/** `npm run dev:console` shows the sources, and asks the server at this address. */
const server = process.env.DAYBOOK_URL ?? 'http://127.0.0.1:8055'

export default defineConfig({
  root: import.meta.dirname,
  base: '/console/',
  plugins: [react()],
  build: {
    target: 'es2023',
    manifest: 'manifest.json',
    // An inlined asset or polyfill would be a script or an address that the policy refuses.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    rolldownOptions: {
      output: {
        // A file for each set of pages that share a module would be fifty requests before a page shows. So there is one of what is
        // loaded at once, and one of what many of the pages need.
        codeSplitting: {
          groups: [
            { name: 'initial', tags: ['$initial'], priority: 2 },
            { name: 'common', minShareCount: 6, priority: 1 },
          ],
        },
      },
    },
  },
  server: {
    port: 8056,
    proxy: {
      '^/(?!console)': { target: server, ws: true },
      '^/console/(extension|mail-view)[^/]*(/|\\.|$)': { target: server },
    },
  },
})
